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


def test_lookups_in_a_remote_table_become_as_few_exchanges_as_their_ids_allow():
    ids = [fluid.layers.data(name, [1], dtype="int64") for name in ("first", "second")]
    found = [fluid.layers.embedding(each, [9, 2], param_attr="table") for each in ids]
    summed = fluid.layers.relu(found[0]) + fluid.layers.relu(found[1])
    later = fluid.layers.cast(fluid.layers.reduce_sum(summed, -1, keep_dim=True), "int64")
    last = fluid.layers.embedding(later, [9, 2], param_attr="table")
    out = fluid.layers.relu(last)

    def pieces(remote):
        return make_plan(block(), [out.name], remote=frozenset(remote)).pieces

    assert [piece.where for piece in pieces(["other"])] == [Where.COMPILED]
    first, _, second, _ = planned = pieces(["table"])
    assert [piece.where for piece in planned] == [Where.EXCHANGE, Where.COMPILED, Where.EXCHANGE, Where.COMPILED]
    assert set(first.writes) == {each.name for each in found} and second.writes == (last.name,)


def test_a_remote_lookup_does_not_overtake_what_writes_its_ids_or_uses_its_output():
    ids = fluid.layers.data("ids", [1], dtype="int64")
    out = fluid.layers.data("out", [2])
    before = fluid.layers.relu(out)
    table = fluid.layers.create_parameter([9, 2], "float32", name="table")
    block().append_op(type="lookup_table", inputs={"Ids": ids, "W": table}, outputs={"Out": out})
    fluid.layers.increment(ids)
    after = fluid.layers.embedding(ids, [9, 2], param_attr="table")
    plan = make_plan(block(), [before.name, after.name], remote=frozenset(["table"]))
    compiled, exchange = Where.COMPILED, Where.EXCHANGE
    assert [piece.where for piece in plan.pieces] == [compiled, exchange, compiled, exchange]
