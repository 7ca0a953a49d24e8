"""One process of a Fleet job for the tests: a server, or a worker that reads the same samples in every mode and way.

    data_job.py ROLE ID ENDPOINTS.json FOLDER

Ways: a DataFeeder, a PyReader around the program and one inside of it, and a Dataset of files. Workers leave the loss
before and after training, and the weights, in FOLDER.
"""

import json
import sys
from pathlib import Path

import numpy as np

import paddle
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import DistributedTranspiler, StrategyFactory

WORKERS, BATCH, BATCHES, PASSES, ROWS = 2, 8, 3, 4, 20

# The loss curves by 2 along the bias, so SGD with gradients that are d steps old converges below sin(pi / (4 d + 2)):
# 0.08 for the nine steps that two async workers may be stale by, 0.5 for the one of half-async.
RATE = 0.05

MODES = {
    "sync": StrategyFactory.create_sync_strategy,
    "half_async": StrategyFactory.create_half_async_strategy,
    "async": StrategyFactory.create_async_strategy,
    "geo": lambda: StrategyFactory.create_geo_strategy(2),
}


def samples():
    """The same for all workers: a few ids, and their mean as label."""
    random = np.random.RandomState(3)
    for _ in range(BATCH * BATCHES):
        ids = random.randint(0, ROWS, random.randint(1, 4))
        yield ids.tolist(), [float(ids.mean() / ROWS)]


def build():
    ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1])
    initial = fluid.initializer.Constant(0.1)
    rows = fluid.layers.embedding(
        ids, [ROWS, 4], is_sparse=True, param_attr=fluid.ParamAttr("table", initializer=initial)
    )
    pooled = fluid.layers.sequence_pool(rows, "average")
    prediction = fluid.layers.fc(pooled, 1, param_attr=fluid.ParamAttr("weight", initializer=initial))
    return [ids, label], fluid.layers.mean(fluid.layers.square_error_cost(prediction, label))


class Worker:
    """What a worker knows when it trains."""

    def __init__(self, fleet, exe, inputs, reader, folder):
        self.fleet, self.exe, self.inputs, self.reader, self.folder = fleet, exe, inputs, reader, folder
        self.batches = paddle.batch(samples, BATCH)

    def run(self, feed=None):
        self.exe.run(self.fleet.main_program, feed=feed)


def feeder(worker):
    convert = fluid.DataFeeder(worker.inputs, fluid.CPUPlace())
    for batch in worker.batches():
        worker.run(convert.feed(batch))


def pyreader(worker):
    reader = fluid.io.PyReader(worker.inputs, capacity=2, iterable=True)
    reader.decorate_sample_list_generator(worker.batches, fluid.CPUPlace())
    for feed in reader():
        worker.run(feed)


def inner_pyreader(worker):
    worker.reader.decorate_sample_list_generator(worker.batches)
    worker.reader.start()
    try:
        while True:
            worker.run()
    except fluid.core.EOFException:
        worker.reader.reset()


def dataset(worker):
    path = worker.folder / f"part-{worker.fleet.worker_index()}"
    path.write_text("".join(f"{len(ids)} {' '.join(map(str, ids))} 1 {label[0]:.9g}\n" for ids, label in samples()))
    files = fluid.DatasetFactory().create_dataset("QueueDataset")
    files.set_use_var(worker.inputs)
    files.set_batch_size(BATCH)
    files.set_filelist([str(path)])
    worker.exe.train_from_dataset(worker.fleet.main_program, files)


WAYS = {each.__name__: each for each in (feeder, pyreader, inner_pyreader, dataset)}
CASES = [f"{mode}/{way}" for mode in MODES for way in WAYS]


def run(case, role, number, endpoints, folder):
    mode, way = case.split("/")
    main, startup, reader = fluid.Program(), fluid.Program(), None
    fleet = DistributedTranspiler()
    scope = fluid.core.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        fleet.init(UserDefinedRoleMaker(number, role, WORKERS, endpoints))
        inputs, loss = build()
        test = main.clone(for_test=True)
        if way == "inner_pyreader":
            reader = fluid.io.PyReader(inputs, capacity=2, iterable=False)
        fleet.distributed_optimizer(fluid.optimizer.SGD(RATE), MODES[mode]()).minimize(loss)
        if fleet.is_server():
            fleet.init_server()
            fleet.run_server()
            return None
        fleet.init_worker()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fleet.startup_program)
        worker = Worker(fleet, exe, inputs, reader, folder)
        feed = fluid.DataFeeder(inputs, fluid.CPUPlace()).feed(list(samples()))
        before = exe.run(test, feed=feed, fetch_list=[loss])[0].item()
        fleet.barrier_worker()  # nobody has trained before
        for _ in range(PASSES):
            WAYS[way](worker)
        fleet.barrier_worker()
        after = exe.run(test, feed=feed, fetch_list=[loss])[0].item()
        weight = np.array(fluid.global_scope().find_var("weight").get_tensor()).reshape(-1).tolist()
        fleet.stop_worker()
        return {"before": before, "after": after, "weight": weight}


def main():
    role, number, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[4])
    endpoints = json.loads(Path(sys.argv[3]).read_text())
    kind = Role.SERVER if role == "server" else Role.WORKER
    seen = {case: run(case, kind, number, endpoints[case], folder) for case in CASES}
    if role == "worker":
        (folder / f"worker{number}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
