"""Trains a benchmark model in this process, or as one of the processes of a job, in any mode and with any input.

Training goes in rounds over the files of a data set. After each file, the first trainer measures the model on held-back
data; the time that takes does not count.
"""

import argparse
import glob
import importlib.util
import json
import os
import subprocess
import sys
import time

import numpy as np

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.transpiler.distribute_transpiler import DistributeTranspilerConfig

MODES = ("sync", "async", "half_async", "geo")


def parser(description):
    found = argparse.ArgumentParser(description=description.splitlines()[0])
    found.add_argument("--data", required=True, help="a folder with part-* files to train on and a file test.txt")
    found.add_argument("--mode", default="local", choices=("local", *MODES))
    found.add_argument("--input", default="loader", choices=["loader", "dataset"])
    found.add_argument("--distributed", action="store_true", help="rows of tables live on servers only")
    found.add_argument("--batch", type=int, default=128, help="of all trainers together")
    found.add_argument("--rate", type=float, help="the learning rate")
    found.add_argument("--seed", type=int, default=11, help="of the first values of all parameters")
    found.add_argument("--rounds", type=int, default=1, help="how often to go through the files")
    found.add_argument("--no-measure", action="store_true", help="train only: real Fluid cannot test during such jobs")
    found.add_argument("--curve", help="a file for the measurements")
    return found


class Part:
    """What a process does in a job."""

    def __init__(self, args):
        self.local = args.mode == "local"
        self.mode, self.number, self.count = args.mode, 0, 1
        if not self.local:
            fleet.init(role_maker.PaddleCloudRoleMaker())
            self.count = fleet.worker_num()
            self.number = fleet.worker_index() if fleet.is_worker() else 0

    def minimize(self, optimizer, loss):
        """Appends the training of a loss; does not return on a server."""
        if self.local:
            optimizer.minimize(loss)
            return fluid.default_main_program(), fluid.default_startup_program()
        fleet.distributed_optimizer(optimizer, config(self.mode)).minimize(loss)
        if fleet.is_server():
            fleet.init_server()
            fleet.run_server()
            raise SystemExit(0)
        fleet.init_worker()
        return fleet.main_program, fleet.startup_program

    def staleness(self):
        """How many pushes were how many steps old when servers applied them; only refluid's servers count them."""
        if self.local or importlib.util.find_spec("refluid") is None:
            return {}
        command = [sys.executable, "-m", "refluid.cli", "status", "--once", "--json", *fleet.server_endpoints()]
        counts = {}
        for status in json.loads(subprocess.check_output(command, timeout=60)).values():
            for steps, count in status["staleness"].items():
                counts[steps] = counts.get(steps, 0) + count
        return counts

    def leave(self):
        if not self.local:
            fleet.stop_worker()


def config(mode):
    found = DistributeTranspilerConfig()
    found.sync_mode = mode == "sync"
    found.runtime_split_send_recv = mode != "sync"
    found.half_async = mode == "half_async"
    if mode == "geo":
        found.geo_sgd_mode, found.geo_sgd_need_push_nums = True, 20
    return found


def run(args, part, model):
    """Trains a model and writes its curve.

    ``model`` has a loss, an optimizer, feeds, ``batches(paths, size, part, parts)``, the command that makes lines of a
    Dataset, ``to_feed(batch)`` and ``measure(exe, program)``.
    """
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = args.seed
    model.build(args)
    tested = fluid.default_main_program().clone(for_test=True)
    main, startup = part.minimize(model.optimizer(args), model.loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    paths = sorted(glob.glob(os.path.join(args.data, "part-*")))
    size, spent, samples, curve = args.batch // part.count, 0.0, 0, []
    train = {"loader": train_by_loader, "dataset": train_by_dataset}[args.input]
    for _ in range(args.rounds):
        for path in paths:
            begin = time.time()
            samples += train(exe, main, model, path, size, part)
            spent += time.time() - begin
            if part.number == 0:
                found = {} if args.no_measure else model.measure(exe, tested)
                curve.append(dict(found, seconds=spent, samples=samples * part.count))
                print("  ".join("%s %.4f" % pair for pair in sorted(curve[-1].items())), flush=True)
    if args.curve and part.number == 0:
        with open(args.curve, "w") as file:
            json.dump({"curve": curve, "staleness": part.staleness()}, file)
    part.leave()


def train_by_loader(exe, main, model, path, size, part):
    """Trains on a file by DataLoader; returns the number of samples."""
    loader = fluid.io.DataLoader.from_generator(feed_list=model.feeds, capacity=8, iterable=True)
    loader.set_batch_generator(lambda: model.batches([path], size, part.number, part.count), places=fluid.CPUPlace())
    count = 0
    for feed in loader():
        exe.run(main, feed=feed)
        count += size
    return count


def train_by_dataset(exe, main, model, path, size, part):
    """Trains on a file by Dataset; returns the number of samples. Trainers take turns in lines."""
    turn = "awk 'NR %% %d == %d' | %s" % (part.count, (part.number + 1) % part.count, model.command)
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_use_var(model.feeds)
    dataset.set_batch_size(size)
    dataset.set_thread(1)
    dataset.set_pipe_command(turn)
    dataset.set_filelist([path])
    exe.train_from_dataset(program=main, dataset=dataset)
    with open(path) as file:
        return sum(model.samples_of(line) for number, line in enumerate(file) if number % part.count == part.number)


def mean_loss(exe, program, loss, feeds):
    return float(np.mean([exe.run(program, feed=feed, fetch_list=[loss])[0].mean() for feed in feeds]))
