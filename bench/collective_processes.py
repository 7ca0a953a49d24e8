"""How much two processes of one core get done that train together, in relation to one process of one core.

Each process is bound to a core of its own and trains LeNet on batches of the same size; between two steps the two of
them add up their gradients. Prints samples per second of both, and the ratio. On a busy machine only the processor time
means something: twice that of one process alone, divided by that in the job, is the ratio where nobody disturbs.

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
    """One process: trains, and prints its samples per second and the processor time of a step in milliseconds."""
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
            begin, busy = time.time(), time.process_time()
        exe.run(program, feed=feed, fetch_list=[loss.name])
    seconds, busy = time.time() - begin, time.process_time() - busy
    print(json.dumps([args.steps * args.batch / seconds, 1e3 * busy / args.steps]), flush=True)


def measure(args, processes):
    """Samples per second of a job, and the processor time of a step of one of its processes."""
    command = [sys.executable, "-m", "paddle.distributed.launch", "--print_config", "False", "--log_dir", args.log_dir]
    command += ["--nproc_per_node", str(processes), __file__, "--steps", str(args.steps), "--batch", str(args.batch)]
    subprocess.check_call(command, stdout=subprocess.DEVNULL)
    found = []
    for rank in range(processes):
        with open(os.path.join(args.log_dir, "workerlog.%d" % rank)) as log:
            found.append(json.loads(log.read().splitlines()[-1]))
    rates, times = zip(*found)
    return sum(rates), max(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--log_dir", default="mylog")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    if "PADDLE_TRAINER_ENDPOINTS" in os.environ:
        return train(args)
    (one, alone), (two, together) = (max(measure(args, count) for _ in range(args.repeats)) for count in (1, 2))
    print("one process    %6.0f samples/s, %6.1f ms of processor time per step" % (one, alone))
    print("two processes  %6.0f samples/s, %6.1f ms of processor time per step in each" % (two, together))
    print("ratio          %6.2f; by processor time %.2f" % (two / one, 2 * alone / together))


if __name__ == "__main__":
    main()
