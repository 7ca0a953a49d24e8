"""Real jobs of N servers and M trainers on this machine, and the processor time that a step takes each process.

A trainer looks up and updates so many different rows in every step; the model is a sum of squares.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np

TABLE, BATCHES, WARMUP = 200000, 8, 12  # rows that batches choose from, different batches, steps that do not count
BLOCK, LEAST = 10, 20  # steps that are measured together; the percentile of blocks that counts
SEED = 5


@dataclass(frozen=True)
class Shape:
    """What a job is like; a trainer takes so many steps."""

    servers: int
    trainers: int
    rows: int
    width: int
    steps: int
    sync: bool = True


@dataclass(frozen=True)
class Measured:
    """Seconds of a step: of processor time of a trainer and of a server, and of a clock.

    Other processes make caches cold and cores slow, so processor time is that of the quieter blocks of steps.
    """

    trainer: float
    server: float  # for the step of one trainer
    steps_per_second: float  # of all trainers
    shortest: float  # by the clock, of a trainer: the fastest of twenty
    others: float  # cores that other processes used meanwhile


def run(shape):
    """Runs a job and returns what it has measured."""
    endpoints = [_free_port(number) for number in range(shape.servers)]
    command = [sys.executable, os.path.abspath(__file__), json.dumps(asdict(shape)), ",".join(endpoints)]
    patient = {"REFLUID_LOG": "error", "FLAGS_rpc_deadline": "900000"}  # kernels may have to be compiled
    environment = dict(patient, **os.environ)
    servers = [subprocess.Popen([*command, each], env=environment) for each in endpoints]
    trainers = [
        subprocess.Popen([*command, str(i)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(shape.trainers)
    ]
    try:
        return _measured(shape, servers, trainers)
    finally:
        for process in [*trainers, *servers]:
            process.kill()
            process.wait()


def _measured(shape, servers, trainers):
    _all_say(trainers, " ".join(str(each.pid) for each in servers))  # once all are warm
    before, began, load = sum(busy(each.pid) for each in servers), time.time(), _cores_in_use()
    found = [json.loads(each.stdout.readline()) for each in trainers]
    wall, after = time.time() - began, sum(busy(each.pid) for each in servers)
    own = sum(sum(each["cpu"]) for each in found) + after - before
    others = (_cores_in_use() - load - own) / wall
    _all_say(trainers, "end", reads=False)
    for process in [*trainers, *servers]:
        process.wait(600)  # on a busy machine, leaving takes its time too
    return Measured(
        trainer=float(np.percentile(np.concatenate([each["cpu"] for each in found]), LEAST)),
        server=float(np.percentile(found[0]["served"], LEAST)) / BLOCK / shape.trainers / shape.servers,
        steps_per_second=shape.steps * shape.trainers / wall,
        shortest=float(np.percentile(np.concatenate([each["wall"] for each in found]), 5)),
        others=max(0.0, others),
    )


def _all_say(trainers, word, reads=True):
    if reads:
        for each in trainers:
            if not each.stdout.readline():
                raise RuntimeError("a trainer has ended early")
    for each in trainers:
        each.stdin.write(word + "\n")
        each.stdin.flush()


def busy(pid):
    """Processor seconds of all threads of a process that live."""
    folder, total = "/proc/%d/task" % pid, 0
    for thread in os.listdir(folder):
        with open(os.path.join(folder, thread, "schedstat")) as file:
            total += int(file.read().split()[0])
    return total / 1e9


def _cores_in_use():
    """Seconds that all cores of the machine were busy."""
    with open("/proc/stat") as file:
        user, nice, system = map(int, file.readline().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def _free_port(number):
    host = "127.0.0.%d" % (number + 1)
    with socket.socket() as found:
        found.bind((host, 0))
        return "%s:%d" % (host, found.getsockname()[1])


# The processes of a job


def _play(shape, endpoints, role):
    import paddle.fluid as fluid

    fluid.default_startup_program().random_seed = SEED
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [TABLE, shape.width], is_sparse=True, is_distributed=True)
    fluid.optimizer.SGD(0.01).minimize(fluid.layers.reduce_sum(fluid.layers.square(rows)))
    transpiler, exe = fluid.DistributeTranspiler(), fluid.Executor(fluid.CPUPlace())
    trainer = int(role) if role.isdigit() else 0
    transpiler.transpile(trainer, pservers=endpoints, trainers=shape.trainers, sync_mode=shape.sync)
    if not role.isdigit():
        main, startup = transpiler.get_pserver_programs(role)
        exe.run(startup)
        exe.run(main)
        return
    main = transpiler.get_trainer_program()
    exe.run(fluid.default_startup_program())
    random = np.random.RandomState(trainer)
    feeds = [{"ids": random.permutation(TABLE)[: shape.rows].reshape(-1, 1)} for _ in range(BATCHES)]
    for number in range(WARMUP):
        exe.run(main, feed=feeds[number % BATCHES])
    print("warm", flush=True)
    servers = [int(pid) for pid in sys.stdin.readline().split()]
    cpu, wall, served = [], [], []
    for number in range(shape.steps):
        if number % BLOCK == 0:
            served.append(sum(map(busy, servers)))
        began, spent = time.perf_counter(), time.process_time()
        exe.run(main, feed=feeds[number % BATCHES])
        cpu.append(time.process_time() - spent)
        wall.append(time.perf_counter() - began)
    print(json.dumps({"cpu": cpu, "wall": wall, "served": np.diff(served).tolist()}), flush=True)
    sys.stdin.readline()
    exe.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("shape", "endpoints", "role"):
        parser.add_argument(name)
    given = parser.parse_args()
    _play(Shape(**json.loads(given.shape)), given.endpoints, given.role)
