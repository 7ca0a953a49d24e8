"""Roles' programs together compute what the program they were made of computes: checked without network."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.ir import Program
from refluid.scope import Scope
from simulated_cluster import EXE, Job

L2 = fluid.regularizer.L2Decay
BATCH, STEPS = 8, 4


@pytest.fixture(autouse=True)
def op_by_op(request):
    """Nothing is compiled but the kernels of single ops: most of the time of these tests would be compiling."""
    with jax.disable_jit("compiled" not in request.keywords):
        yield


def dense_model(optimizer, clip=None):
    """Two layers; with ``min_block_size`` 8, the first one's weights and bias are sliced."""

    def build():
        fluid.default_startup_program().random_seed = 7
        x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
        hidden = fluid.layers.fc(x, 9, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        if clip is not None:
            fluid.clip.set_gradient_clip(clip())
        optimizer().minimize(loss)

    return build


def sparse_model(optimizer, clip=None):
    """Two slots of one table, one of them with padding, and a dense layer."""

    def build():
        fluid.default_startup_program().random_seed = 7
        x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
        words = [fluid.layers.data(name, [1], dtype="int64") for name in ("a", "b")]
        found = [
            fluid.layers.embedding(word, [11, 4], is_sparse=True, param_attr="emb", padding_idx=padding)
            for word, padding in zip(words, (None, 3), strict=True)
        ]
        prediction = fluid.layers.fc([x, *found], 1)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(prediction, y))
        if clip is not None:
            fluid.clip.set_gradient_clip(clip())
        optimizer().minimize(loss)

    return build


def batches():
    random = np.random.RandomState(3)
    for _ in range(STEPS):
        yield {
            "x": random.randn(BATCH, 6).astype("float32"),
            "y": 3 * random.randn(BATCH, 1).astype("float32"),
            "a": random.randint(0, 11, (BATCH, 1)),
            "b": random.randint(0, 11, (BATCH, 1)),
        }


def train_locally(build):
    """All persistable variables after training on whole batches."""
    main, startup, scope = Program(), Program(), Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        build()
    EXE.run(startup, scope=scope)
    inputs = {v.name for v in main.list_vars() if v.is_data}
    for batch in batches():
        EXE.run(main, feed={name: batch[name] for name in inputs}, scope=scope)
    return {v.name: np.asarray(scope.find_var(v.name).value) for v in main.list_vars() if v.persistable}


def train_as_job(job):
    count = len(job.trainers)
    for batch in batches():
        job.step([{name: part[i::count] for name, part in batch.items()} for i in range(count)])


def small_slices(sliced=True, **options):
    def config():
        config = fluid.DistributeTranspilerConfig()
        config.min_block_size, config.slice_var_up = 8, sliced
        for name, value in options.items():
            setattr(config, name, value)
        return config

    return config


def assert_equals(job, local):
    for name, expected in local.items():
        np.testing.assert_allclose(job.whole(name), expected, rtol=1e-6, atol=1e-6, err_msg=name)


def sgd():
    return fluid.optimizer.SGD(0.1)


def momentum():
    return fluid.optimizer.Momentum(0.05, 0.9, regularization=fluid.regularizer.L1Decay(0.01))


def decaying_adam():
    return fluid.optimizer.Adam(fluid.layers.exponential_decay(0.05, 2, 0.7), regularization=L2(0.01))


def by_global_norm():
    return fluid.clip.GradientClipByGlobalNorm(0.5)


def by_norm():
    return fluid.clip.GradientClipByNorm(0.3)


def by_value():
    return fluid.clip.GradientClipByValue(0.2)


CASES = {
    "sgd": dense_model(sgd),
    "momentum": dense_model(momentum),
    "adam, decay, l2": dense_model(decaying_adam),
    "global norm": dense_model(decaying_adam, by_global_norm),
    "norm": dense_model(momentum, by_norm),
    "value": dense_model(momentum, by_value),
    "rows": sparse_model(sgd),
    "rows, adam": sparse_model(lambda: fluid.optimizer.Adam(0.05, lazy_mode=True)),
    "rows, global norm": sparse_model(sgd, by_global_norm),
    "rows, norm, l2": sparse_model(lambda: fluid.optimizer.SGD(0.1, regularization=L2(0.1)), by_norm),
}


@pytest.mark.parametrize("case", CASES)
def test_a_job_of_two_servers_and_two_trainers_equals_local_training(case):
    local = train_locally(CASES[case])
    job = Job(CASES[case], config=small_slices())
    train_as_job(job)
    assert_equals(job, local)


@pytest.mark.parametrize("sliced", [True, False])
@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("case", ["adam, decay, l2", "rows, global norm"])
def test_any_number_of_servers_gives_the_same(case, servers, sliced):
    job = Job(CASES[case], servers, trainers=1, config=small_slices(sliced))
    train_as_job(job)
    assert_equals(job, train_locally(CASES[case]))
