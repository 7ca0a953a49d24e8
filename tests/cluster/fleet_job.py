"""One process of a Fleet job for the tests, a server or a worker:

    fleet_job.py ROLE ID ENDPOINTS.json FOLDER

Runs `CASES` one after the other, each at endpoints of its own. Workers leave what they have seen in FOLDER.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import DistributedTranspiler, StrategyFactory
from refluid.runtime.trainer import session as sessions

WORKERS, STEPS = 2, 6


def build():
    ids = fluid.layers.data("ids", [1], dtype="int64")
    label = fluid.layers.data("label", [1])
    rows = fluid.layers.embedding(ids, [20, 4], is_sparse=True, param_attr="table")
    prediction = fluid.layers.fc(rows, 1)
    return prediction, fluid.layers.mean(fluid.layers.square_error_cost(prediction, label))


class Worker:
    """What a worker of a case does between init_worker and stop_worker."""

    def __init__(self, fleet, prediction, loss, folder):
        self.fleet, self.prediction, self.loss, self.folder = fleet, prediction, loss, folder
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.seen = {}

    def start(self):
        self.exe.run(self.fleet.startup_program)

    def train(self, steps=STEPS, compiled=True):
        program = self.fleet.main_program
        if compiled:
            strategy = fluid.BuildStrategy()
            strategy.async_mode = True
            program = fluid.CompiledProgram(program).with_data_parallel(self.loss.name, build_strategy=strategy)
        ids = np.arange(20).reshape(20, 1)  # the same in every step and for all, so that losses fall
        feed = {"ids": ids, "label": (ids / 20).astype("float32")}
        losses = []
        for _ in range(steps):
            losses.append(self.exe.run(program, feed=feed, fetch_list=[self.loss])[0].item())
        self.seen["losses"] = losses

    def meet(self):
        """The second worker comes to the barrier when the first is about to wait there."""
        first, second = self.folder / "first", self.folder / "second"
        if self.fleet.worker_index() == 0:
            first.touch()
            self.fleet.barrier_worker()
            self.seen["met"] = [1.0 if second.exists() else 0.0]
        else:
            while not first.exists():
                time.sleep(0.01)
            second.touch()
            self.fleet.barrier_worker()

    def shuffle(self, samples=50):
        """Shuffles 50 samples of this worker, and 49 of the other one."""
        number = self.fleet.worker_index()
        file = self.folder / f"part{number}.txt"
        lines = [
            f"1 {1000 * number + i + 1} {i % 3 + 1} {' '.join('7' * (i % 3 + 1))}" for i in range(samples - number)
        ]
        file.write_text("\n".join(lines))
        variables = [fluid.layers.data(name, [1], dtype="int64", lod_level=level) for level, name in enumerate("ab")]
        dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
        dataset.set_use_var(variables)
        dataset.set_filelist([str(file)])
        dataset.set_fleet_send_batch_size(4)
        dataset.load_into_memory()
        sizes = [dataset.get_memory_data_size(self.fleet), dataset.get_shuffle_data_size(self.fleet)]
        dataset.global_shuffle(self.fleet, thread_num=2)
        sizes += [dataset.get_memory_data_size(), dataset.get_shuffle_data_size(self.fleet)]
        feeds = list(dataset.feeds())
        self.seen["sizes"] = sizes
        self.seen["samples"] = [int(value) for feed in feeds for value in np.ravel(feed["a"])]
        self.seen["lengths"] = [int(n) for feed in feeds for n in feed["b"].recursive_sequence_lengths()[0]]

    def value(self, name):
        return np.array(fluid.global_scope().find_var(name).get_tensor()).reshape(-1).tolist()


def save(worker):
    worker.start()
    worker.train()
    worker.meet()
    if worker.fleet.is_first_worker():
        worker.fleet.save_persistables(worker.exe, str(worker.folder / "persistables"))
        worker.fleet.save_inference_model(worker.exe, str(worker.folder / "model"), ["ids"], [worker.prediction])
        worker.seen["weight"] = worker.value("fc_0.w_0")
    worker.fleet.barrier_worker()
    status = sessions.current().status()
    worker.seen["status"] = [status[0]["round"], status[0]["pushes"], len(status[0]["trainers"]), len(status)]


def load(worker):
    """Servers have loaded what `save` saved; the second worker has nothing to do, not even the startup program."""
    if worker.fleet.is_first_worker():
        worker.start()
        worker.seen["weight"] = worker.value("fc_0.w_0")


def steer(worker):
    worker.start()
    communicator = fluid.communicator.Communicator(worker.fleet.main_program)
    running = [communicator.is_running()]
    communicator.start()
    worker.train(3)
    running.append(communicator.is_running())
    communicator.stop()
    running.append(communicator.is_running())
    try:
        worker.train(1)
    except RuntimeError as error:
        running.append("start it again" in str(error))
    communicator.start()
    worker.train(3)
    communicator.recv()
    running.append(communicator.is_running())
    worker.seen["running"] = [float(value) for value in running]


def train(worker):
    worker.start()
    worker.train(compiled=False)


def shuffle_and_train(worker):
    worker.shuffle()
    train(worker)


def half_async_config():
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode, config.half_async = False, True
    return config


CASES = {
    "save": (StrategyFactory.create_sync_strategy, fluid.optimizer.Momentum, (0.1, 0.9), save),
    "load": (fluid.DistributeTranspilerConfig, fluid.optimizer.Momentum, (0.1, 0.9), load),
    "steer": (StrategyFactory.create_async_strategy, fluid.optimizer.SGD, (0.01,), steer),
    "geo": (lambda: StrategyFactory.create_geo_strategy(2), fluid.optimizer.SGD, (0.1,), train),
    "half_async": (half_async_config, fluid.optimizer.Adam, (0.1,), shuffle_and_train),
}


def run(name, role, number, endpoints, folder):
    make_strategy, optimizer, arguments, work = CASES[name]
    main, startup = fluid.Program(), fluid.Program()
    fleet = DistributedTranspiler()
    scope = fluid.core.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        fleet.init(UserDefinedRoleMaker(number, role, WORKERS, endpoints))
        prediction, loss = build()
        fleet.distributed_optimizer(optimizer(*arguments), make_strategy()).minimize(loss)
        if fleet.is_server():
            fleet.init_server(str(folder / "persistables") if name == "load" else None)
            fleet.run_server()
            return {}
        fleet.init_worker()
        worker = Worker(fleet, prediction, loss, folder)
        work(worker)
        fleet.stop_worker()
        return worker.seen


def main():
    role, number, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[4])
    endpoints = json.loads(Path(sys.argv[3]).read_text())
    seen = {}
    for name in CASES:
        if name == "load":  # servers load what the first worker has saved, so they come after it
            while not (folder / "model").exists():
                time.sleep(0.02)
        seen[name] = run(name, Role.SERVER if role == "server" else Role.WORKER, number, endpoints[name], folder)
    if role == "worker":
        (folder / f"worker{number}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
