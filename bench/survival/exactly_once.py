"""Pushes of +1 to a server that is killed, over a connection that loses replies and delivers requests twice.

    python bench/survival/exactly_once.py [--pushes 100000] [--kills 5] [--lost 0.2] [--doubled 0.2]

Real processes: SIGKILL ends the server and it is started again; connection and server are those that ship. Prints, with
a log and without one, the sum that the server has at the end and how many updates the trainer was told are lost. The
exit code is 0 if both are exact.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, os.pardir, "tests"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from cluster import counting, pushing
from cluster.forked import Processes, free_ports
from refluid.runtime.transport.request import RetryPolicy


class Impatient(object):
    """Lost replies are asked for at once, servers that restart a little later."""

    @staticmethod
    def pause(policy, attempt):
        return 0.0 if attempt == 1 else min(0.02 * attempt, 0.5)


def train(case, args):
    """The trainer: writes how far it is, and at the end what it found."""
    RetryPolicy.pause = Impatient.pause
    connect = pushing.unreliable(random.Random(7), args.lost, args.doubled)
    pusher = pushing.Pusher(case, 0, connect)
    with open(case["events"], "w") as progress:
        for push in range(args.pushes):
            pusher.push()
            if push % 100 == 99:
                progress.seek(0)
                progress.write("%d\n" % (push + 1))
                progress.flush()
    found = dict(total=pusher.total(), lost=pusher.session.lost_updates)
    with open(case["found"], "w") as file:
        json.dump(found, file)
    pusher.session.leave()


def run(args, logs):
    """A line about a job with a log or without one, and whether its sum is right."""
    folder = tempfile.mkdtemp(prefix="once")
    path = os.path.join(folder, "case.json")
    case = dict(
        endpoints=["127.0.0.1:%d" % free_ports(1)[0]], trainers=1, mode="async", table="dense", steps=0,
        events=os.path.join(folder, "events"), found=os.path.join(folder, "found"),
    )  # fmt: skip
    with open(path, "w") as file:
        json.dump(case, file)
    settings = {
        "FLAGS_rpc_server_snapshots": os.path.join(folder, "snapshots"),
        "FLAGS_rpc_server_snapshot_secs": 2.0,
        "FLAGS_rpc_server_log": os.path.join(folder, "log") if logs else "",
        "FLAGS_rpc_server_log_sync": False,
    }
    processes = Processes(folder, settings)
    serve = partial(counting.serve, case, 0, lambda what: None)
    began = time.time()
    try:
        processes.start(("server", 0), serve)
        processes.start(("trainer", 0), partial(train, case, args))
        due = [args.pushes * kill // (args.kills + 1) for kill in range(1, args.kills + 1)]
        while ("trainer", 0) in processes.running:
            if due and progress(case) >= due[0]:
                due.pop(0)
                assert processes.kill(("server", 0)), processes.output(("server", 0))
                processes.start(("server", 0), serve)
            processes.reap()
            time.sleep(0.01)
        if processes.ended["trainer", 0]:
            raise SystemExit(processes.output(("trainer", 0)))
        with open(case["found"]) as file:
            found = json.load(file)
    finally:
        processes.end()
        shutil.rmtree(folder)
    exact = found["total"] == args.pushes - found["lost"] and not (logs and found["lost"])
    print(
        "%-12s %d pushes, %d kills: sum %d, reported as lost %d, %s; %.0f s"
        % ("with a log" if logs else "without", args.pushes, args.kills - len(due), found["total"], found["lost"],
           "exact" if exact else "WRONG", time.time() - began), flush=True,
    )  # fmt: skip
    return exact


def progress(case):
    """How many pushes the trainer has made, in hundreds."""
    try:
        with open(case["events"]) as file:
            return int(file.read() or 0)
    except (IOError, ValueError):
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pushes", type=int, default=100000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--lost", type=float, default=0.2, help="the part of replies that are lost")
    parser.add_argument("--doubled", type=float, default=0.2, help="the part of requests that arrive twice")
    args = parser.parse_args()
    exact = [run(args, logs) for logs in (True, False)]
    sys.exit(0 if all(exact) else 1)


if __name__ == "__main__":
    main()
