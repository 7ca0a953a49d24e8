"""A table that one machine can just hold: trains it on two real servers until it has all its rows, and goes on.

    python bench/large_table.py --rows 2e8        # width 8, SGD: needs 13 GB of memory

Every step of the first part brings ids that no step had before, scattered over all int64; steps of the second part use
ids at random. Prints the memory that servers take for a row, and steps and rows per second of both parts. Stops, and says
so, when the machine has less than ``--spare`` GB of memory left.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np

WIDTH = 8


def ids_of(numbers):
    return (np.asarray(numbers).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64).reshape(-1, 1)


def build():
    import paddle.fluid as fluid

    fluid.default_startup_program().random_seed = 7
    ids = fluid.layers.data("ids", [1], dtype="int64")
    attr = fluid.ParamAttr("emb", initializer=fluid.initializer.Uniform(-0.1, 0.1))
    rows = fluid.layers.embedding(ids, [2**31, WIDTH], is_sparse=True, is_distributed=True, param_attr=attr)
    loss = fluid.layers.mean(fluid.layers.square(rows))
    fluid.optimizer.SGD(0.5).minimize(loss)
    return loss


def work(args):
    """A server, or the trainer."""
    import paddle.fluid as fluid

    loss = build()
    transpiler, exe = fluid.DistributeTranspiler(), fluid.Executor(fluid.CPUPlace())
    transpiler.transpile(0, pservers=args.servers, trainers=1, sync_mode=True)
    if args.role == "server":
        main, startup = transpiler.get_pserver_programs(args.endpoint)
        exe.run(startup)
        exe.run(main)
        return
    main = transpiler.get_trainer_program()
    exe.run(fluid.default_startup_program())
    random = np.random.RandomState(0)
    for what, steps in (("new", int(args.rows) // args.batch), ("known", args.steps)):
        began = time.time()
        for step in range(steps):
            numbers = np.arange(step * args.batch, (step + 1) * args.batch)
            if what == "known":
                numbers = random.randint(0, int(args.rows), args.batch)
            (value,) = exe.run(main, feed={"ids": ids_of(numbers)}, fetch_list=[loss])
            if step % 20 == 0:
                print("step %d of %d with %s ids: loss %.6f" % (step, steps, what, float(value[0])), flush=True)
        spent = time.time() - began
        print(
            "%s ids: %.2f steps/s of %d ids, %.2f M rows/s looked up and updated"
            % (what, steps / spent, args.batch, steps * args.batch / spent / 1e6),
            flush=True,
        )
        if what == "new":
            sys.stdin.readline()  # until memory was measured
    exe.close()


def memory_of(process):
    with open("/proc/%d/status" % process.pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024


def available():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 2**20


def free_port(host):
    with socket.socket() as found:
        found.bind((host, 0))
        return "%s:%d" % (host, found.getsockname()[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=2e6)
    parser.add_argument("--batch", type=int, default=1 << 19)
    parser.add_argument("--steps", type=int, default=40, help="of the second part")
    parser.add_argument("--spare", type=float, default=1.5, help="GB of memory to leave")
    parser.add_argument("--role")
    parser.add_argument("--endpoint")
    parser.add_argument("--servers")
    args = parser.parse_args()
    if args.role:
        work(args)
        return
    endpoints = [free_port("127.0.0.1"), free_port("127.0.0.2")]
    again = [sys.executable, os.path.abspath(__file__), "--rows", str(args.rows), "--batch", str(args.batch)]
    again += ["--steps", str(args.steps), "--servers", ",".join(endpoints), "--role"]
    servers = [
        subprocess.Popen([*again, "server", "--endpoint", each], stderr=subprocess.DEVNULL) for each in endpoints
    ]
    trainer = subprocess.Popen(
        [*again, "trainer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    empty = None
    try:
        for line in trainer.stdout:
            print(line, end="", flush=True)
            if empty is None:
                empty = sum(map(memory_of, servers))
            if line.startswith("new"):
                held, count = sum(map(memory_of, servers)), int(args.rows) // args.batch * args.batch
                print(
                    "servers hold %.2f GB for %d rows: %.1f bytes each (payload %d)"
                    % (held / 1e9, count, (held - empty) / count, 8 + 4 * WIDTH),
                    flush=True,
                )
                trainer.stdin.write("\n")
                trainer.stdin.flush()
            if available() < args.spare:
                raise SystemExit("stopped: only %.1f GB of memory are left" % available())
    finally:
        for process in [trainer, *servers]:
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.send_signal(signal.SIGKILL)
    sys.exit(max(process.wait(60) for process in [trainer, *servers]))


if __name__ == "__main__":
    main()
