"""Records how real Fluid converges; run by the Python of real Fluid itself:

    ORACLE/bin/python tests/convergence/record.py [--modes a,b] [--models a,b] [--again]

Writes data/real_fluid.npz, after every case, and skips what it already holds, so it can be interrupted. Paddle is
imported once; every process of a job is a fork of this one. Real Fluid's servers do not end by themselves and are
killed. A job that crashes or hangs is repeated once, then counts as not converged.
"""

import argparse
import itertools
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from contextlib import closing

import numpy as np

os.environ.setdefault("FLAGS_initial_cpu_memory_in_mb", "16")  # or every process begins by filling 500 MB
import models
import train

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cluster.jobs import free_endpoints

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "real_fluid.npz")
MODES = ["local", "local_each", "tasync", "async", "half_async", "geo", "geo100", "tsync"]
RATES = [0.1, 1 / 3.0, 1.0, 3.0]
SEEDS = 5
TIMEOUT = 30.0


def start(case, role, number):
    """Forks a process of a job; what it has seen is written to the case's folder."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(os.path.join(case["folder"], f"{role}{number}.log"), os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        found = train.run(case, role, number)
        np.savez(os.path.join(case["folder"], f"{role}{number}.npz"), **found)
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, this fork must not go on as the recorder
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # what real Fluid does at exit takes long and may hang


def listens(endpoint):
    host, port = endpoint.split(":")
    with closing(socket.socket()) as probe:
        return probe.connect_ex((host, int(port))) == 0


def play(case):
    """Runs one job; what its trainers have seen, or None if it failed."""
    case = dict(case, folder=tempfile.mkdtemp(prefix="convergence"), endpoints=free_endpoints(2))
    local = case["mode"].startswith("local")
    servers = [] if local else [start(case, "server", number) for number in range(2)]
    roles = ["local0"] if local else ["trainer0", "trainer1"]
    end = time.time() + TIMEOUT
    while servers and not all(listens(endpoint) for endpoint in case["endpoints"]) and time.time() < end:
        time.sleep(0.01)
    working = {start(case, role[:-1], int(role[-1])) for role in roles}
    while working and time.time() < end:
        codes = {pid: os.waitpid(pid, os.WNOHANG) for pid in working}
        working = {pid for pid, found in codes.items() if not found[0]}
        if any(found[1] for found in codes.values()):
            break
        time.sleep(0.01)
    for pid in servers + list(working):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    try:
        return [dict(np.load(os.path.join(case["folder"], role + ".npz"))) for role in roles]
    except OSError:
        show_logs(case["folder"])
        return None
    finally:
        shutil.rmtree(case["folder"], ignore_errors=True)


def show_logs(folder):
    for name in sorted(os.listdir(folder)):
        if name.endswith(".log"):
            with open(os.path.join(folder, name)) as file:
                print(name, file.read()[-600:])


def record(case):
    """First and last held-back loss, and the mean training losses of every twentieth of the steps."""
    for attempt in range(2):
        found = play(case)
        if found is not None:
            curve = np.mean([each["losses"].reshape(20, -1).mean(1) for each in found], axis=0)
            return np.concatenate([[found[0]["first"], found[0]["last"]], curve]).astype("float32")
        print("failed", attempt, case)
    return np.full(22, np.nan, "float32")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--models", default=",".join(models.MODELS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--again", action="store_true", help="also what is recorded already")
    chosen = parser.parse_args()
    recorded = dict(np.load(DATA)) if os.path.exists(DATA) else {}
    names = chosen.modes.split(","), chosen.models.split(",")
    for seed, mode, model, rate in itertools.product(range(chosen.seeds), *names, range(len(RATES))):
        table = recorded.setdefault(f"{model}/{mode}", np.full((len(RATES), SEEDS, 22), np.inf, "float32"))
        if not chosen.again and not np.isposinf(table[rate, seed, 0]):
            continue
        begin = time.time()
        table[rate, seed] = record({"model": model, "mode": mode, "rate": RATES[rate], "seed": seed})
        first, last = table[rate, seed, :2]
        took = time.time() - begin
        print(f"{model:9} {mode:10} {RATES[rate]:.2f} {seed} {first:9.4f} {last:9.4f}  {took:.1f}s", flush=True)
        np.savez_compressed(DATA, **recorded)


if __name__ == "__main__":
    if not os.path.isdir(os.path.dirname(DATA)):
        os.makedirs(os.path.dirname(DATA))
    main()
