"""Rewrites for collective training follow their closed forms, on simulated replicas."""

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.transpiler.collective import Collective, GradAllReduce, LocalSGD, SingleProcessMultiThread
from refluid.transpiler.gradient_merge import MergeGradients
from replicated import Replicas

RATE, STEPS = 0.1, 6
rng = np.random.default_rng(3)
X = rng.normal(size=(STEPS, 8, 3)).astype(np.float32)
Y = rng.normal(size=(STEPS, 8, 1)).astype(np.float32)
START = np.array([[0.5], [-1.0], [2.0]], np.float32)
ENDPOINTS = "127.0.0.1:6170,127.0.0.1:6171"


def linear(optimizer=None):
    """The mean squared error of ``x @ w``, minimized; its only parameter begins with START."""
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1])
    begin = fluid.initializer.NumpyArrayInitializer(START)
    out = fluid.layers.fc(x, 1, bias_attr=False, param_attr=fluid.ParamAttr("w", initializer=begin))
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    (optimizer or fluid.optimizer.SGD(RATE)).minimize(loss)
    return loss


def gradient(w, x, y):
    return 2 * x.T @ (x @ w - y) / len(x)


def start_up():
    """Runs the startup program, except for what joins processes and communicates."""
    startup = fluid.default_startup_program().clone()
    block = startup.global_block()
    block.ops = [op for op in block.ops if not op.type.startswith("c_")]
    startup.changed()
    fluid.Executor(fluid.CPUPlace()).run(startup)


def follow(loss, count):
    """The parameter of every replica after each step: [step, replica, ...]."""
    start_up()
    replicas = Replicas(fluid.default_main_program(), ["x", "y"], [loss, "w"], count)
    return np.stack([replicas.run(x=x, y=y)[1] for x, y in zip(X, Y, strict=True)])


def transpile(transpiler, rank=0):
    endpoint = ENDPOINTS.split(",")[rank]
    transpiler.transpile(None, None, rank, ENDPOINTS, endpoint, False)


def test_all_reduced_gradients_are_those_of_the_whole_batch():
    loss = linear()
    transpile(GradAllReduce())
    found, w = follow(loss, 2), START
    for step in range(STEPS):
        w = w - RATE * gradient(w, X[step], Y[step])
        np.testing.assert_allclose(found[step], [w, w], rtol=1e-5)


@pytest.mark.parametrize("interval", [1, 3])
def test_local_sgd_averages_parameters_after_some_steps(interval):
    loss = linear()
    transpile(LocalSGD(k_steps=interval))
    found, w = follow(loss, 2), np.stack([START, START])
    for step in range(STEPS):
        shares = zip(w, X[step].reshape(2, 4, 3), Y[step].reshape(2, 4, 1), strict=True)
        w = np.stack([own - RATE * gradient(own, x, y) for own, x, y in shares])
        if (step + 1) % interval == 0:
            w = np.stack([w.mean(0)] * 2)
        np.testing.assert_allclose(found[step], w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("averages", [True, False])
def test_merged_gradients_are_one_update_of_a_larger_batch(averages):
    loss = linear(fluid.optimizer.Momentum(RATE, 0.9, regularization=fluid.regularizer.L2Decay(0.1)))
    MergeGradients(3, averages).apply(fluid.default_main_program(), fluid.default_startup_program())
    found, w, velocity = follow(loss, 1), START, np.zeros_like(START)
    for step in range(STEPS):
        if step % 3 == 2:
            merged = sum(gradient(w, X[i], Y[i]) for i in range(step - 2, step + 1)) / (3 if averages else 1)
            velocity = 0.9 * velocity + merged + 0.1 * w
            w = w - RATE * velocity
        np.testing.assert_allclose(found[step, 0], w, rtol=1e-5)


def test_merged_gradients_are_averaged_over_replicas():
    loss = linear()
    MergeGradients(2).apply(fluid.default_main_program(), fluid.default_startup_program())
    transpile(GradAllReduce())
    main = fluid.default_main_program()
    assert [[op.type for op in block.ops].count("c_allreduce_sum") for block in main.blocks] == [0, 1]
    found = follow(loss, 2)
    np.testing.assert_allclose(found[0], [START, START])
    merged = (gradient(START, X[0], Y[0]) + gradient(START, X[1], Y[1])) / 2
    np.testing.assert_allclose(found[1], [START - RATE * merged] * 2, rtol=1e-5)


def test_sparse_gradients_are_merged():
    ids = fluid.layers.data("ids", [1], dtype="int64")
    table = fluid.ParamAttr("table", initializer=fluid.initializer.Constant(1.0))
    loss = fluid.layers.reduce_sum(fluid.layers.embedding(ids, [4, 2], is_sparse=True, param_attr=table))
    fluid.optimizer.SGD(1.0).minimize(fluid.layers.reshape(loss, [1]))
    MergeGradients(2, averages=False).apply(fluid.default_main_program(), fluid.default_startup_program())
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for batch in ([[0], [1]], [[1], [3]]):
        (found,) = executor.run(feed={"ids": np.array(batch)}, fetch_list=["table"])
    np.testing.assert_allclose(found[:, 0], [0, -1, 1, 0])


def test_programs_know_their_processes():
    linear()
    transpile(GradAllReduce(), rank=1)
    for program in (fluid.default_main_program(), fluid.default_startup_program().clone()):
        assert (program._trainers_endpoints, program._trainer_id) == (ENDPOINTS.split(","), 1)


def test_threads_of_one_process_need_no_endpoints():
    linear()
    SingleProcessMultiThread().transpile(None, None, 0, "127.0.0.1:6170", "127.0.0.1:6170", False)
    assert [op.type for op in fluid.default_startup_program().global_block().ops][-1] == "c_comm_init_all"
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())


@pytest.mark.parametrize(
    ("rank", "endpoints", "current", "message"),
    [
        (0, "127.0.0.1:6170", "127.0.0.1:6170", "at least 2 processes; endpoints lists only 127.0.0.1:6170"),
        (0, ENDPOINTS, "127.0.0.1:6179", "current_endpoint 127.0.0.1:6179 is not among 127.0.0.1:6170, 127.0.0.1:6171"),
        (2, ENDPOINTS, "127.0.0.1:6171", "this is process 2, but the job has 2 processes, numbered from 0"),
        (0, "127.0.0.1:6170,here", "here", "endpoints contains 'here'"),
        (0, "a:1,a:1", "a:1", "endpoints lists a process twice: a:1,a:1"),
    ],
)
def test_wrong_places_are_named(rank, endpoints, current, message):
    linear()
    with pytest.raises(ValueError, match=message):
        GradAllReduce().transpile(None, None, rank, endpoints, current, False)


def test_what_cannot_be_rewritten_says_why():
    with pytest.raises(ValueError, match="computes no gradients of parameters; call minimize"):
        transpile(GradAllReduce())
    with pytest.raises(ValueError, match="updates no parameter; call minimize before distributing"):
        transpile(LocalSGD())
    with pytest.raises(ValueError, match="updates no parameter; call minimize before merging"):
        MergeGradients(2).apply(fluid.default_main_program(), fluid.default_startup_program())
    linear()
    with pytest.raises(ValueError, match="k_steps must be a positive integer, not 0"):
        MergeGradients(0)
    with pytest.raises(ValueError, match="steps between averages must be at least 1, not 0"):
        transpile(LocalSGD(k_steps=0))
    with pytest.raises(NotImplementedError, match="Collective does not say how replicas communicate"):
        transpile(Collective(1))


def test_a_program_is_transpiled_once():
    linear()
    transpile(GradAllReduce())
    with pytest.raises(ValueError, match="already been transpiled"):
        transpile(LocalSGD())
