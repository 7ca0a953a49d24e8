"""What a step of the demo's distributed job costs: time, and processor time over all of its processes.

    python bench/job_cost.py [--mode sync] [--steps 100 400] [--servers 2] [--trainers 2]

Runs examples/distributed_ctr.py as a job twice, with fewer and with more steps: the difference is what the steps cost,
without starting, compiling and saving. Prints milliseconds per step of the job.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, os.pardir, "examples", "distributed_ctr.py")


def run(args, steps, folder):
    """Seconds and processor seconds of a job."""
    command = [sys.executable, "-m", "paddle.distributed.launch_ps", "--print_config", "False"]
    command += ["--server_num", str(args.servers), "--worker_num", str(args.trainers), "--log_dir", folder + "/logs"]
    command += [SCRIPT, "--steps", str(steps), "--mode", args.mode, "--save_dir", folder + "/model"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    subprocess.check_call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.time() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="sync", choices=["sync", "async", "half_async", "geo"])
    parser.add_argument("--steps", type=int, nargs=2, default=[100, 400])
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--trainers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(args, 10, folder)  # fills the cache of compiled programs
        few, many = (run(args, steps, folder) for steps in sorted(args.steps))
    count = abs(args.steps[1] - args.steps[0])
    wall, busy = (1e3 * (more - less) / count for less, more in zip(few, many))
    print("%s: %.2f ms per step, %.2f ms of processor time over all processes" % (args.mode, wall, busy))


if __name__ == "__main__":
    main()
