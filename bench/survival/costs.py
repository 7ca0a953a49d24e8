"""What survival and security cost: steps/s of jobs with parameter servers, with and without them.

    python bench/survival/costs.py [--before PYTHON] [--rounds 5] [--mode tsync] [--models fit_a_line,wide_mlp,ctr_dnn]

Runs bench/ps.py by turns with everything default, with snapshots and a log (synced, and not), and with mTLS and a token;
and, with --before, with the interpreter of an environment in which an earlier version is installed:

    git worktree add ../before d37f3d8; cd ../before; make .venv/.installed

Prints the median of the rounds: steps/s and what they are of the first row, milliseconds of processor time of a step on a
trainer, and seconds of processor time of all processes, startup included. On a machine that others use, look at the
latter two. CTR_DISTRIBUTED=1 has ctr_dnn keep its rows in tables that grow.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(HERE, os.pardir)
MODELS = "fit_a_line,wide_mlp,ctr_dnn"


def variants(args, folder):
    """(name, interpreter, environment) of each row; every run gets folders of its own for snapshots and logs."""
    log = {"FLAGS_rpc_server_snapshots": os.path.join(folder, "snapshots")}
    log["FLAGS_rpc_server_log"] = os.path.join(folder, "log")
    found = [("default", sys.executable, {})]
    if args.before:
        found.insert(0, ("before", args.before, {}))
    found += [
        ("log", sys.executable, log),
        ("log, not synced", sys.executable, dict(log, FLAGS_rpc_server_log_sync="0")),
        ("mTLS", sys.executable, certificates(folder)),
    ]
    return found


def certificates(folder):
    """Certificates of a job on this machine, and a token."""
    made = os.path.join(folder, "certificates")
    subprocess.check_call(
        [os.path.join(os.path.dirname(sys.executable), "refluid"), "certificates", "--hosts", "127.0.0.1", made],
        stdout=subprocess.DEVNULL,
    )
    names = dict(certificate="server.pem", key="server.key", authority="authority.pem")
    found = dict(("FLAGS_rpc_tls_" + part, os.path.join(made, name)) for part, name in names.items())
    missing = [path for path in found.values() if not os.path.exists(path)]
    if missing:
        raise SystemExit("refluid certificates did not write %s, but %s" % (missing, os.listdir(made)))
    return dict(found, FLAGS_rpc_token="a-token-for-this-measurement")


def measure(python, env, model, args):
    """The result of a run, with the processor time of all of its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [python, os.path.join(BENCH, "ps.py"), "--model", model, "--mode", args.mode]
    out = subprocess.run(command, env=dict(os.environ, **env), stdout=subprocess.PIPE).stdout.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads(out.strip().splitlines()[-1])
    if "failed" in found:
        raise SystemExit("%s: %s" % (model, found))
    found["all_cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found


def median(runs, key):
    values = sorted(run[key] for run in runs)
    return values[len(values) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", metavar="PYTHON", help="the interpreter of an earlier version's environment")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mode", default="tsync", help="as ps.py knows them")
    parser.add_argument("--models", default=MODELS)
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="costs")
    try:
        rows = variants(args, folder)
        print("%-12s%-18s%10s%8s%12s%10s" % ("", "", "steps/s", "", "trainer ms", "all cpu s"))
        for model in args.models.split(","):
            runs = dict((name, []) for name, _, _ in rows)
            for _ in range(args.rounds):
                for name, python, env in rows:
                    runs[name].append(measure(python, env, model, args))
                    for part in ("snapshots", "log"):
                        shutil.rmtree(os.path.join(folder, part), ignore_errors=True)
            first = median(runs[rows[0][0]], "steps_per_s")
            for name, _, _ in rows:
                rate, cpu, everything = (
                    median(runs[name], key) for key in ("steps_per_s", "trainer_cpu_ms_per_step", "all_cpu_s")
                )
                print("%-12s%-18s%10.1f%7.0f%%%12.2f%10.1f" % (model, name, rate, 100 * rate / first, cpu, everything))
                sys.stdout.flush()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
