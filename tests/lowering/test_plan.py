"""Cutting blocks into compiled pieces and host calls."""

from __future__ import annotations

import numpy as np

import paddle.fluid as fluid
from refluid.lowering.folding import reads_and_writes
from refluid.lowering.interpreter import pair_gradients
from refluid.lowering.plan import Where, make_plan


def block():
    return fluid.default_main_program().global_block()


def run(feed, fetch):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe.run(feed=feed, fetch_list=fetch)


def test_a_training_program_is_one_compiled_piece():
    x = fluid.layers.data("x", [4])
    loss = fluid.layers.mean(fluid.layers.fc(x, 3))
    fluid.optimizer.SGD(0.1).minimize(loss)
    plan = make_plan(block(), [loss.name])
    (piece,) = plan.pieces
    assert piece.where is Where.COMPILED
    assert sorted(plan.persists) == ["fc_0.b_0", "fc_0.w_0"]
    assert set(plan.reads) == {"x", "fc_0.b_0", "fc_0.w_0", "learning_rate_0"}


def test_every_derived_gradient_finds_its_forward_op():
    x = fluid.layers.data("x", [4])
    hidden = fluid.layers.fc(fluid.layers.fc(x, 3, act="tanh"), 3, act="tanh")
    fluid.backward.append_backward(fluid.layers.mean(hidden))
    ops = block().ops
    derived = [op for op in ops if op.definition.forward is not None]
    paired = pair_gradients(ops)
    assert len(derived) == 7
    assert all(id(op) in paired for op in derived)
    forward = {id(op): op for op in ops}
    for op in derived:
        assert op.type == forward[paired[id(op)]].type + "_grad"


def test_a_gradient_op_without_its_forward_recomputes():
    x = fluid.layers.data("x", [4])
    x.stop_gradient = False
    out = fluid.layers.tanh(x)
    fluid.backward.append_backward(fluid.layers.reduce_sum(out))
    value = np.linspace(-1, 1, 4, dtype="float32").reshape(1, 4)
    (expected,) = run({"x": value}, ["x@GRAD"])
    (gradient,) = [op for op in block().ops if op.type == "tanh_grad"]
    block().ops = [gradient]
    fluid.default_main_program().changed()
    (alone,) = run({"x": value, out.name: np.tanh(value), out.name + "@GRAD": np.ones_like(value)}, ["x@GRAD"])
    np.testing.assert_allclose(alone, expected, rtol=1e-6)


def test_constants_and_shapes_are_folded_into_reshapes():
    x = fluid.layers.data("x", [6])
    shape = fluid.layers.shape(x)
    target = fluid.layers.concat(
        [
            fluid.layers.slice(shape, [0], [0], [1]),
            fluid.layers.fill_constant([2], "int32", 0) + fluid.layers.assign(np.array([2, 3], "int32")),
        ]
    )
    out = fluid.layers.reshape(x, [-1, 2, 3], actual_shape=target)
    plan = make_plan(block(), [out.name])
    assert [piece.where for piece in plan.pieces] == [Where.COMPILED]
    (value,) = run({"x": np.arange(12, dtype="float32").reshape(2, 6)}, [out])
    assert value.shape == (2, 2, 3)


def test_shapes_that_depend_on_values_run_between_compiled_pieces():
    x = fluid.layers.data("x", [5])
    positive = fluid.layers.where(fluid.layers.scale(x, 2.0) > fluid.layers.fill_constant([1], "float32", 0.0))
    doubled = positive + positive
    plan = make_plan(block(), [doubled.name])
    assert [piece.where for piece in plan.pieces] == [Where.COMPILED, Where.HOST, Where.COMPILED]
    (value,) = run({"x": np.array([[1, -1, 2, -2, 3]], "float32")}, [doubled])
    np.testing.assert_array_equal(value, [[0, 0], [0, 4], [0, 8]])


def test_a_host_op_between_forward_and_backward_keeps_the_gradients():
    x = fluid.layers.data("x", [3])
    hidden = fluid.layers.fc(x, 4, act="tanh")
    seen = []

    def look(value):
        seen.append(np.array(value))

    fluid.layers.py_func(look, x=hidden, out=None)
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
    fluid.optimizer.SGD(0.5).minimize(loss)
    pieces = make_plan(block(), [loss.name]).pieces
    assert [piece.where for piece in pieces] == [Where.COMPILED, Where.HOST, Where.COMPILED]
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((2, 3), "float32")}
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    assert len(seen) == 3
    assert seen[0].shape == (2, 4)


def test_reads_and_writes_in_order():
    x = fluid.layers.data("x", [3])
    y = fluid.layers.scale(x, 2.0)
    z = x + y
    reads, writes = reads_and_writes(block().ops)
    assert reads == ["x"]
    assert writes == [y.name, z.name]
