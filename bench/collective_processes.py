"""How much two processes of one core get done that train together, in relation to one process of one core.

Each process is bound to a core of its own and trains LeNet on batches of the same size; between two steps the two of
them add up their gradients. Prints samples per second of both, and the ratio.

    python bench/collective_processes.py [--steps 30] [--batch 128]
"""

import argparse
import json
import os
import subprocess
import sys
import time

WARMUP = 5


def train(args):
    """One process: trains, and prints its samples per second."""
    rank, endpoints = int(os.environ["PADDLE_TRAINER_ID"]), os.environ["PADDLE_TRAINER_ENDPOINTS"]
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})  # before XLA counts them
    import numpy as np

    import paddle.fluid as fluid

    image, label = fluid.layers.data("image", [1, 28, 28]), fluid.layers.data("label", [1], dtype="int64")
    hidden = fluid.layers.conv2d(image, 32, 5, act="relu")
    hidden = fluid.layers.pool2d(hidden, 2, pool_stride=2)
    hidden = fluid.layers.conv2d(hidden, 64, 5, act="relu")
    hidden = fluid.layers.pool2d(hidden, 2, pool_stride=2)
    predicted = fluid.layers.fc(fluid.layers.fc(hidden, 256, act="relu"), 10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(predicted, label))
    fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
    program = fluid.default_main_program()
    if "," in endpoints:
        config = fluid.DistributeTranspilerConfig()
        config.mode = "nccl2"
        t = fluid.DistributeTranspiler(config=config)
        t.transpile(rank, trainers=endpoints, current_endpoint=os.environ["PADDLE_CURRENT_ENDPOINT"])
        program = fluid.CompiledProgram(program).with_data_parallel(loss_name=loss.name)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    random = np.random.RandomState(rank)
    feed = {
        "image": random.rand(args.batch, 1, 28, 28).astype("float32"),
        "label": random.randint(0, 10, (args.batch, 1)),
    }
    for step in range(WARMUP + args.steps):
        if step == WARMUP:
            begin = time.time()
        exe.run(program, feed=feed, fetch_list=[loss.name])
    print(json.dumps({"samples per second": args.steps * args.batch / (time.time() - begin)}), flush=True)


def measure(args, processes):
    """Samples per second of a job."""
    command = [sys.executable, "-m", "paddle.distributed.launch", "--print_config", "False", "--log_dir", args.log_dir]
    command += ["--nproc_per_node", str(processes), __file__, "--steps", str(args.steps), "--batch", str(args.batch)]
    subprocess.check_call(command, stdout=subprocess.DEVNULL)
    rates = []
    for rank in range(processes):
        with open(os.path.join(args.log_dir, "workerlog.%d" % rank)) as log:
            rates.append(json.loads(log.read().splitlines()[-1])["samples per second"])
    return sum(rates)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--log_dir", default="mylog")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    if "PADDLE_TRAINER_ENDPOINTS" in os.environ:
        return train(args)
    one, two = (max(measure(args, processes) for _ in range(args.repeats)) for processes in (1, 2))
    print(json.dumps({"one process": round(one, 1), "two processes": round(two, 1), "ratio": round(two / one, 2)}))


if __name__ == "__main__":
    main()
