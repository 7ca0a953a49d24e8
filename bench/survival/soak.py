"""A job that trains for a long time, in which a server or a trainer is killed every minute and started again.

    python bench/survival/soak.py [--minutes 30] [--every 60] [--mode async]

Two servers and two trainers. Server 1 and trainer 1 are killed by turns; what server 0 and trainer 0 take, which live
through all of it, is sampled. Prints a line after each kill, and at the end how much more memory, threads and
descriptors they take than after a fifth of the time. The exit code is 0 if that is nothing (memory: 5 %, as pages are
touched one by one) and every push counts once.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, os.pardir, "tests"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

from cluster import counting, kills
from cluster.forked import Processes, free_ports, usage

STAYS = [("server", 0), ("trainer", 0)]
KILLED = [("server", 1), ("trainer", 1)]


class Soak(object):
    """The job and its samples: (seconds, usage) by process."""

    def __init__(self, args):
        self.folder = tempfile.mkdtemp(prefix="soak")
        path = self.at("case.json")
        self.case = dict(
            endpoints=["127.0.0.1:%d" % port for port in free_ports(2)], trainers=2, steps=10 ** 9, mode=args.mode,
            table="growing", events=os.devnull, found=self.at("found"), saved=self.at("saved"), over=self.at("over"),
        )  # fmt: skip
        with open(path, "w") as file:
            json.dump(self.case, file)
        settings = {
            "FLAGS_rpc_server_snapshots": self.at("snapshots"),
            "FLAGS_rpc_server_snapshot_secs": 10.0,
            "FLAGS_rpc_server_log": self.at("log"),
            "FLAGS_rpc_server_log_sync": False,
        }
        self.processes = Processes(self.folder, settings)
        self.start = lambda name: self.processes.start(name, partial(counting.main, path, *name))
        self.samples = {name: [] for name in STAYS}

    def at(self, name):
        return os.path.join(self.folder, name)

    def watch(self, seconds, began):
        """Samples for a while; an error if a process ends."""
        end = time.time() + seconds
        while time.time() < end:
            for name in STAYS:
                self.samples[name].append((time.time() - began, usage(self.processes.running[name])))
            time.sleep(min(1.0, max(0.0, end - time.time())))
            self.processes.reap()
            for name in self.processes.ended:
                raise SystemExit("%s %d ended:\n%s" % (name + (self.processes.output(name)[-2000:],)))

    def finish(self):
        """Lets the job end, and says what is wrong with its numbers."""
        open(self.case["over"], "w").close()
        if not self.processes.wait(120):
            lines = ["%s %d: %s" % (name + (self.processes.output(name)[-300:],)) for name in self.processes.running]
            return "the job does not end:\n" + "\n".join(lines)
        failed = [name for name, code in self.processes.ended.items() if code]
        if failed:
            return "%s %d: %s" % (failed[0] + (self.processes.output(failed[0])[-2000:],))
        return kills.check(dict(self.case, steps=0), kills.undisturbed()[0])


def growth(samples, minutes):
    """How much more a process takes at the end than after a fifth of the time: medians of a tenth each."""
    found = {}
    for what in ("memory", "threads", "descriptors"):
        early, late = (
            sorted(use[what] for at, use in samples if begin <= at / (60.0 * minutes) < begin + 0.1)
            for begin in (0.2, 0.9)
        )
        found[what] = early[len(early) // 2], late[len(late) // 2]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=60, help="seconds between two kills")
    parser.add_argument("--mode", default="async", choices=["sync", "half_async", "async"])
    args = parser.parse_args()
    soak, good, number = Soak(args), True, 0
    try:
        for name in STAYS + KILLED:
            soak.start(name)
        began = time.time()
        while time.time() - began + args.every <= 60 * args.minutes:
            soak.watch(args.every, began)
            victim = KILLED[number % 2]
            number += 1
            soak.processes.kill(victim)
            soak.start(victim)
            now = ["%s %d %.1f MB %d threads %d files" % (
                name + tuple(soak.samples[name][-1][1][what] for what in ("memory", "threads", "descriptors"))
            ) for name in STAYS]  # fmt: skip
            print("%5.1f min  killed %s %d; %s" % (((time.time() - began) / 60,) + victim + ("; ".join(now),)))
            sys.stdout.flush()
        soak.watch(60 * args.minutes - (time.time() - began), began)
        for name in STAYS:
            for what, (early, late) in growth(soak.samples[name], args.minutes).items():
                grows = late > early * 1.05 if what == "memory" else late > early
                good = good and not grows
                print("%s %d: %s %.1f, at the end %.1f%s" % (name + (what, early, late, " GROWS" if grows else "")))
        problem = soak.finish()
        print("%d kills; numbers: %s" % (number, problem or "exact"))
    finally:
        soak.processes.end()
        shutil.rmtree(soak.folder, ignore_errors=True)
    sys.exit(0 if good and not problem else 1)


if __name__ == "__main__":
    main()
