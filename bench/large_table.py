"""A table that one machine can just hold: trains it on real servers until it has all its rows, and goes on.

    python bench/large_table.py --rows 2e8        # width 8, SGD: needs 13 GB of memory

Every step of the first part brings ids that no step had before, scattered over all int64; steps of the second part use
ids at random. Prints rows per second of both parts, the memory of each server and of a row, and the largest difference of
sampled rows from what they must be. Stops, and says so, when the machine has less than ``--spare`` GB of memory left.
"""

import argparse
import os
import socket
import subprocess
import sys
import time

import numpy as np

WIDTH, RATE = 8, 0.1


def ids_of(numbers):
    """Ids that are scattered over all 64 bits."""
    return (np.asarray(numbers).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64).reshape(-1, 1)


def wanted_of(numbers):
    """What the rows of these numbers are trained towards."""
    return (np.asarray(numbers) % 1009).astype("float32").reshape(-1, 1) / 1009


def build():
    """Every occurrence of an id moves its row by a RATE of the way to its target."""
    import paddle.fluid as fluid

    fluid.default_startup_program().random_seed = 7
    ids, wanted = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("wanted", [1])
    attr = fluid.ParamAttr("emb", initializer=fluid.initializer.Uniform(-0.1, 0.1))
    rows = fluid.layers.embedding(ids, [2**31, WIDTH], is_sparse=True, is_distributed=True, param_attr=attr)
    wanted = fluid.layers.expand(wanted, [1, WIDTH])
    fluid.optimizer.SGD(RATE / 2).minimize(fluid.layers.reduce_sum(fluid.layers.square(rows - wanted)))


class Sample:
    """Some rows, and what they must be by now."""

    def __init__(self, table, rows, count=20000):
        self._table, self._step = table, max(rows // count, 1)
        self.numbers = np.arange(0, rows, self._step)
        self._expected = self.read()
        self._begin, self._wanted = self._expected, wanted_of(self.numbers)

    def read(self):
        return np.array(self._table[ids_of(self.numbers).reshape(-1)])

    def follow(self, numbers):
        """Takes the step that a batch with these numbers takes."""
        hit = numbers[numbers % self._step == 0] // self._step
        times = np.bincount(hit[hit < len(self.numbers)], minlength=len(self.numbers)).reshape(-1, 1)
        self._expected = self._expected + RATE * times * (self._wanted - self._expected)

    def report(self):
        """Compares the servers' rows with the expected ones; False if they differ."""
        found = self.read()
        apart, moved = np.abs(found - self._expected).max(), np.abs(found - self._begin).max(axis=1)
        print("%d sampled rows: largest difference %.1e; %d of them moved" % (len(found), apart, (moved > 0).sum()))
        return apart < 1e-5


def train(args):
    """The trainer: prints a line per part, and waits for the driver after each."""
    import paddle.fluid as fluid

    build()
    transpiler, exe = fluid.DistributeTranspiler(), fluid.Executor(fluid.CPUPlace())
    transpiler.transpile(0, pservers=args.servers, trainers=1, sync_mode=True)
    main, rows = transpiler.get_trainer_program(), int(args.rows) // args.batch * args.batch
    exe.run(fluid.default_startup_program())
    sample, random, good = (
        Sample(fluid.global_scope().find_var("emb").get_tensor(), rows),
        np.random.RandomState(0),
        True,
    )
    for what, steps in (("new", rows // args.batch), ("known", args.steps)):
        began, cpu = time.time(), time.process_time()
        for step in range(steps):
            numbers = np.arange(step * args.batch, (step + 1) * args.batch)
            if what == "known":
                numbers = random.randint(0, rows, args.batch)
            exe.run(main, feed={"ids": ids_of(numbers), "wanted": wanted_of(numbers)})
            sample.follow(numbers)
            if step % 50 == 0:
                print("step %d of %d with %s ids" % (step, steps, what), flush=True)
        spent, cpu = time.time() - began, time.process_time() - cpu
        figures = (what, steps / spent, args.batch, steps * args.batch / spent / 1e6, 1e9 * cpu / steps / args.batch)
        print("%s ids: %.2f steps/s of %d ids, %.2f M rows/s looked up and updated; %.0f ns of CPU per row" % figures)
        good = sample.report() and good
        print("done with %s ids" % what, flush=True)
        sys.stdin.readline()  # until memory was measured
    exe.close()
    sys.exit(not good)


def serve(args):
    import paddle.fluid as fluid

    build()
    transpiler, exe = fluid.DistributeTranspiler(), fluid.Executor(fluid.CPUPlace())
    transpiler.transpile(0, pservers=args.servers, trainers=1, sync_mode=True)
    main, startup = transpiler.get_pserver_programs(args.role)
    exe.run(startup)
    exe.run(main)


def memory_of(process):
    """Bytes that a process takes now."""
    with open("/proc/%d/status" % process.pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024


def available():
    """GB that the machine has left."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 2**20


def show_memory(servers, empty, rows):
    held = [memory_of(server) for server in servers]
    taken = (sum(held) - sum(empty)) / rows
    payload = 8 + 4 * WIDTH
    print(
        "servers take %s GB for %d rows: %.1f bytes each, %.2f of id and weights (%d)"
        % (" and ".join("%.2f" % (each / 1e9) for each in held), rows, taken, taken / payload, payload),
        flush=True,
    )


def follow(trainer, servers, args):
    """Prints what the trainer prints, and memory after each part."""
    empty = None
    for line in trainer.stdout:
        print(line, end="", flush=True)
        if empty is None:
            empty = [memory_of(server) for server in servers]
        if line.startswith("done"):
            show_memory(servers, empty, int(args.rows) // args.batch * args.batch)
            trainer.stdin.write("\n")
            trainer.stdin.flush()
        if available() < args.spare:
            raise SystemExit("stopped: only %.1f GB of memory are left" % available())


def free_port(number):
    host = "127.0.0.%d" % (number + 1)
    with socket.socket() as found:
        found.bind((host, 0))
        return "%s:%d" % (host, found.getsockname()[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=2e6)
    parser.add_argument("--batch", type=int, default=1 << 19)
    parser.add_argument("--steps", type=int, default=40, help="of the second part")
    parser.add_argument("--count", type=int, default=2, help="of servers")
    parser.add_argument("--spare", type=float, default=2.0, help="GB of memory to leave")
    for hidden in ("--role", "--servers"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        return train(args) if args.role == "trainer" else serve(args)
    endpoints = [free_port(number) for number in range(args.count)]
    again = [sys.executable, os.path.abspath(__file__), "--rows", str(args.rows), "--batch", str(args.batch)]
    again += ["--steps", str(args.steps), "--servers", ",".join(endpoints), "--role"]
    environment = dict(os.environ, REFLUID_LOG=os.environ.get("REFLUID_LOG", "warning"))
    servers = [subprocess.Popen([*again, each], env=environment) for each in endpoints]
    trainer = subprocess.Popen(
        [*again, "trainer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    )
    try:
        follow(trainer, servers, args)
        sys.exit(max(process.wait(60) for process in [trainer, *servers]))
    finally:
        for process in [trainer, *servers]:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
