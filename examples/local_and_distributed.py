"""Trains distributed_ctr.py twice, locally and with 2 servers and 2 trainers, and compares the results.

    python examples/local_and_distributed.py

In sync mode, two trainers with half of each batch compute the same as one process with whole batches.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "distributed_ctr.py")
LAUNCH = [sys.executable, "-m", "paddle.distributed.launch_ps", "--print_config", "False"]


def run(command, title):
    """Runs a command, prints its output as it arrives, and returns it."""
    print("\n== %s" % title, flush=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    lines = []
    for line in process.stdout:
        lines.append(line)
        print(line, end="", flush=True)
    if process.wait():
        sys.exit("%s ended with exit code %d" % (title, process.returncode))
    return "".join(lines)


def read(folder, name):
    with open(os.path.join(folder, name + ".json")) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        script = [SCRIPT, "--steps", str(args.steps), "--losses_dir", folder, "--save_dir"]
        alone = run([sys.executable, *script, os.path.join(folder, "alone"), "--local"], "one process")
        options = ["--server_num", str(args.servers), "--worker_num", str(args.trainers)]
        options += ["--log_dir", os.path.join(folder, "logs")]
        title = "%d servers, %d trainers" % (args.servers, args.trainers)
        together = run([*LAUNCH, *options, *script, os.path.join(folder, "together")], title)
        local = read(folder, "local")
        trainers = [read(folder, "trainer_%d" % number) for number in range(args.trainers)]

    mean = [sum(losses) / len(losses) for losses in zip(*trainers)]
    print("\n== cost of a step, alone and averaged over trainers")
    for step in range(0, args.steps, max(1, args.steps // 6)):
        print("step %4d  %.6f  %.6f" % (step + 1, local[step], mean[step]))
    areas = [float(re.findall(r"test auc ([0-9.]+)", text)[-1]) for text in (alone, together)]
    print("test auc   %.4f    %.4f" % tuple(areas))
    print("largest difference of a cost %.1e" % max(abs(a - b) / a for a, b in zip(local, mean)))


if __name__ == "__main__":
    main()
