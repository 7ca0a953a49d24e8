"""Kills processes of jobs at every stage: tests/cluster/kills.py for as many seeds as there is time for.

    python bench/survival/kills.py [--runs 150] [--first 0] [--at_once 2] [--keep FOLDER]
    python bench/survival/kills.py --only SEED [SEED ...]     some of them again

Jobs in which nobody is killed come first, so that others find what they compile. Prints a line for each run as it ends,
and the sums. The exit code is 0 if no job hangs or counts wrong.
"""

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, os.pardir, "tests"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # of all processes, however quick

from cluster import kills


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=150)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", type=int, nargs="+", default=[], metavar="SEED", help="these, and no others")
    parser.add_argument("--at_once", type=int, default=2)
    parser.add_argument("--keep", help="a folder for logs and files of runs that do not end well")
    args = parser.parse_args()
    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
    plans = [kills.plan(seed) for seed in args.only or range(args.first, args.first + args.runs)]
    if not args.only:
        plans = kills.undisturbed() + plans
    print("%5s %-9s%-9s%-11s%-6s%-18s%-15s%8s" % ("seed", *"victim phase mode table options result end".split()))
    counts, longest = Counter(), 0.0
    with multiprocessing.get_context("fork").Pool(args.at_once) as pool:
        for outcome in pool.imap_unordered(partial(kills.run, keep=args.keep), plans):
            counts[outcome.result] += 1
            longest = max(longest, outcome.seconds)
            print(outcome, flush=True)
    print(
        "%s; %.1f s from a kill to the end at most"
        % (", ".join("%d %s" % pair[::-1] for pair in counts.items()), longest)
    )
    sys.exit(0 if not counts[kills.WRONG] + counts[kills.HANGS] else 1)


if __name__ == "__main__":
    main()
