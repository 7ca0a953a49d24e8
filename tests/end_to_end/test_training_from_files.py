"""Programs that train from recordio files: on one machine, and with parameter servers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from simulated_cluster import EXE, Job, close_jobs

BATCHES, PASSES = 3, 2
WEIGHTS = np.linspace(-1, 1, 6, dtype="float32").reshape(6, 1)


@pytest.fixture(autouse=True)
def jobs_end():
    yield
    close_jobs()


def samples(part):
    """Batches of four samples: features, the id of a word, and what they add up to."""
    random = np.random.RandomState(part)
    for _ in range(BATCHES):
        x, word = random.rand(4, 6).astype("float32"), random.randint(0, 5, (4, 1))
        yield list(zip(x, word, x @ WEIGHTS + word, strict=True))


@pytest.fixture
def files(tmp_path):
    """A file for each of two trainers."""
    paths = [str(tmp_path / f"part-{part}.recordio") for part in range(2)]
    with fluid.program_guard(fluid.Program()):
        feeder = fluid.DataFeeder(fed_variables(), fluid.CPUPlace())
        for part, path in enumerate(paths):
            count = fluid.recordio_writer.convert_reader_to_recordio_file(path, lambda part=part: samples(part), feeder)
            assert count == BATCHES
    return paths


def fed_variables():
    return layers.data("x", [6]), layers.data("word", [1], dtype="int64"), layers.data("y", [1])


def read_variables(path):
    """The same variables from a file; the reader doubles the features, in a thread."""
    form = [[-1, 6], [-1, 1], [-1, 1]], [0, 0, 0], ["float32", "int64", "float32"]
    preprocessor = layers.Preprocessor(layers.open_files([path], *form))
    with preprocessor.block():
        x, word, y = preprocessor.inputs()
        preprocessor.outputs(x * 2.0, word, y)
    return layers.read_file(layers.double_buffer(preprocessor()))


def train(x, word, y):
    fluid.default_startup_program().random_seed = 7
    found = layers.embedding(word, [5, 4], is_sparse=True, param_attr="emb")
    loss = layers.mean(layers.square_error_cost(layers.fc([x, found], 1), y))
    fluid.optimizer.SGD(0.05).minimize(loss)
    return loss


def fed_training(parts):
    """Losses and weights of a program that is fed the batches of all parts together."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        variables = fed_variables()
        loss = train(*variables)
        feeder, scope = fluid.DataFeeder(variables, fluid.CPUPlace()), fluid.Scope()
        EXE.run(fluid.default_startup_program(), scope=scope)
        losses = []
        for _ in range(PASSES):
            for batches in zip(*map(samples, parts), strict=True):
                feed = feeder.feed(itertools.chain.from_iterable(batches))
                feed["x"].value = feed["x"].value * 2
                losses += EXE.run(feed=feed, fetch_list=[loss], scope=scope)
        return losses, weights(scope)


def weights(scope):
    return [np.asarray(scope.find_var(name).value) for name in ("emb", "fc_0.w_0", "fc_0.w_1")]


def readers_in(scope):
    """Readers of a scope, with those that wrap others last."""
    held = [scope.find_var(name).holder for name in scope.local_var_names()]
    return [holder for holder in held if hasattr(holder, "next")]


def test_reading_gives_the_losses_of_feeding(files):
    with fluid.scope_guard(fluid.Scope()):
        loss = train(*read_variables(files[0]))
        EXE.run(fluid.default_startup_program())
        losses = []
        for _ in range(PASSES):
            with pytest.raises(fluid.core.EOFException):
                while True:
                    losses += EXE.run(fetch_list=[loss])
            readers_in(fluid.global_scope())[-1].reset()
        expected, trained = fed_training([0])
        np.testing.assert_array_equal(losses, expected)
        for found, value in zip(weights(fluid.global_scope()), trained, strict=True):
            np.testing.assert_array_equal(found, value)
    assert np.mean(losses[BATCHES:]) < np.mean(losses[:BATCHES])


def job_of_two(files, sync_mode, **fields):
    """Two trainers, each with a file of its own."""
    own = iter(files)

    def config():
        made = fluid.DistributeTranspilerConfig()
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    return Job(lambda: train(*read_variables(next(own))), config=config, sync_mode=sync_mode)


def passes(job):
    for _ in range(PASSES):
        for _ in range(BATCHES):
            job.step([{}, {}])
        for trainer in job.trainers:
            with pytest.raises(fluid.core.EOFException):
                trainer.step({})
            readers_in(trainer.scope)[-1].reset()


def test_trainers_with_files_of_their_own_equal_training_on_all_of_them(files):
    job = job_of_two(files, sync_mode=True)
    passes(job)
    _, trained = fed_training([0, 1])
    for name, value in zip(("emb", "fc_0.w_0", "fc_0.w_1"), trained, strict=True):
        np.testing.assert_allclose(job.whole(name), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fields", [{}, {"half_async": True}, {"geo_sgd_mode": True, "geo_sgd_need_push_nums": 2}])
def test_asynchronous_trainers_read_files_too(files, fields):
    job = job_of_two(files, sync_mode=False, **fields)
    before = job.whole("fc_0.w_0")
    passes(job)
    found = job.whole("fc_0.w_0")
    _, trained = fed_training([0, 1])
    assert np.abs(found - trained[1]).max() < np.abs(before - trained[1]).max()
