"""Programs that read, with parameter servers: a trainer reads its own batches, servers do not know of readers."""

import numpy as np
import pytest

import paddle.fluid as fluid
from simulated_cluster import Job, close_jobs

STEPS = 3


@pytest.fixture(autouse=True)
def closed():
    yield
    close_jobs()


def batches(trainer):
    """The batches of one trainer: ids, and a number for each."""
    random = np.random.RandomState(trainer)
    return [(random.randint(0, 50, (4, 1)), random.rand(4, 1).astype("float32")) for _ in range(STEPS)]


class Model:
    """Builds the program of one trainer after the other; with a loader, the program reads."""

    def __init__(self, reads):
        self.reads, self.loaders = reads, []

    def __call__(self):
        ids, y = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("y", [1])
        if self.reads:
            self.loaders.append(fluid.io.DataLoader.from_generator([ids, y], 2, iterable=False))
        rows = fluid.layers.embedding(ids, [50, 4], is_sparse=True, param_attr="table")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(rows, 1), y))
        fluid.default_startup_program().random_seed = 5
        fluid.optimizer.SGD(0.1).minimize(loss)


def geo():
    config = fluid.DistributeTranspilerConfig()
    config.geo_sgd_mode, config.geo_sgd_need_push_nums, config.sync_mode = True, 1, False
    return config


def half_async():
    config = fluid.DistributeTranspilerConfig()
    config.half_async, config.sync_mode = True, False
    return config


@pytest.mark.parametrize(
    ("config", "sync_mode", "trainers"),
    [(None, True, 2), (None, False, 1), (half_async, False, 1), (geo, False, 1)],
    ids=["sync", "async", "half async", "geo"],
)
def test_a_job_that_reads_equals_one_that_is_fed(config, sync_mode, trainers):
    results = []
    for reads in (False, True):
        model = Model(reads)
        job = Job(model, servers=2, trainers=trainers, config=config, sync_mode=sync_mode)
        for number, (trainer, loader) in enumerate(zip(job.trainers, model.loaders, strict=False)):
            ops = trainer.program.global_block().ops
            assert [op.type for op in ops[:3]] == ["create_py_reader", "create_double_buffer_reader", "read"]
            trainer.scope.var(ops[0].input("blocking_queue")[0]).holder = loader.queue
            loader.set_batch_generator(batches(number))
            loader.start()
        for step in range(STEPS):
            fed = [dict(zip(("ids", "y"), batches(number)[step], strict=True)) for number in range(trainers)]
            job.step([{}] * trainers if reads else fed)
        with pytest.raises((fluid.core.EOFException, RuntimeError)):
            job.step([{}] * trainers)  # nothing is fed, or nothing is left to read
        for loader in model.loaders:
            loader.reset()
        results.append([job.whole("table"), job.whole("fc_0.w_0")])
    for fed, read in zip(*results, strict=True):
        np.testing.assert_array_equal(fed, read)


def test_servers_have_no_readers():
    job = Job(Model(reads=True), servers=2, trainers=1)
    for server in job.servers.values():
        for program in (server.program, server.startup):
            names = {op.type for block in program.blocks for op in block.ops}
            assert not names & {"read", "create_py_reader", "create_double_buffer_reader"}
            assert all(variable.type != fluid.core.VarDesc.VarType.READER for variable in program.list_vars())
