"""Loops that fill arrays: compiled where a constant bounds them, with the same results as on the host."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from golden.cases.beam import search, starts
from golden.runner import feed_value
from paddle.fluid import layers
from refluid.executor import Executor
from refluid.lowering.plan import Where, make_plan


def plan_of(program, *fetches):
    return [piece.where for piece in make_plan(program.global_block(), [v.name for v in fetches]).pieces]


def test_a_beam_search_is_one_compiled_piece_and_finds_the_same_on_the_host():
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 2
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        state = layers.data("state", [5])
        ids, scores = (layers.data(n, [1], dtype=d, lod_level=2) for n, d in (("ids", "int64"), ("scores", "float32")))
        found = search(fluid, state, ids, scores, beam_size=3, length=6, end=4)
    assert plan_of(main, *found) == [Where.COMPILED, Where.HOST]
    feed = {name: feed_value(fluid, value) for name, value in starts(2).items()}
    feed["state"] = np.random.default_rng(0).standard_normal((2, 5)).astype("float32")
    executor = Executor()
    executor.run(startup)
    compiled = executor.run(main, feed=feed, fetch_list=list(found), return_numpy=False)
    (loop,) = [op for op in main.global_block().ops if op.type == "while"]
    eager = frozenset([loop.attrs["sub_block"].idx])
    plan = make_plan(main.global_block(), [v.name for v in found], eager_loops=eager)
    assert [piece.where for piece in plan.pieces if loop in piece.schedule.ops] == [Where.HOST]
    on_host = Executor()
    on_host._eager_loops[main] = eager
    exact = on_host.run(main, feed=feed, fetch_list=list(found), return_numpy=False)
    for mine, other in zip(compiled, exact, strict=True):
        assert mine.lod() == other.lod()
        np.testing.assert_allclose(np.array(mine), np.array(other), rtol=1e-5)


def counted(limit, body):
    """A loop that calls ``body(i)``, which may return another condition, ``limit`` times."""
    i = layers.fill_constant([1], "int64", 0)
    end = layers.fill_constant([1], "int64", limit)
    going = layers.less_than(i, end)
    with layers.While(going).block():
        body(i)
        layers.increment(i)
        layers.less_than(i, end, cond=going)
    return i


def test_an_array_of_tensors_of_one_shape_is_filled_by_a_compiled_loop():
    x = layers.data("x", [2], append_batch_size=False)
    array = layers.create_array("float32")
    counted(3, lambda i: layers.array_write(x * layers.cast(i, "float32"), i, array=array))
    length = layers.array_length(array)
    program = fluid.default_main_program()
    assert plan_of(program, array, length) == [Where.COMPILED]
    tensors, count = Executor().run(program, feed={"x": np.float32([1, 2])}, fetch_list=[array, length])
    assert [each.tolist() for each in tensors] == [[0, 0], [1, 2], [2, 4]]
    assert count == [3]


def test_tensors_that_grow_in_every_iteration_are_filled_on_the_host():
    x = layers.data("x", [2, 1], append_batch_size=False)
    array = layers.array_write(x, layers.fill_constant([1], "int64", 0))
    i = layers.fill_constant([1], "int64", 0)
    end = layers.fill_constant([1], "int64", 3)
    going = layers.less_than(i, end)
    with layers.While(going).block():
        before = layers.array_read(array, i)
        layers.increment(i)
        layers.array_write(layers.concat([before, before], axis=1), i, array=array)
        layers.less_than(i, end, cond=going)
    (tensors,) = Executor().run(feed={"x": np.ones((2, 1), "float32")}, fetch_list=[array])
    assert [each.shape for each in tensors] == [(2, 1), (2, 2), (2, 4), (2, 8)]


def test_an_array_that_is_not_filled_in_order_is_filled_on_the_host():
    x = layers.data("x", [2], append_batch_size=False)
    array = layers.create_array("float32")
    counted(2, lambda i: layers.array_write(x, i * 3, array=array))
    assert Where.HOST in plan_of(fluid.default_main_program(), array)
    (tensors,) = Executor().run(feed={"x": np.float32([1, 2])}, fetch_list=[array])
    assert [each.tolist() for each in tensors] == [[1, 2], [0, 0], [0, 0], [1, 2]]


def test_a_counter_that_a_loop_changes_is_known_before_the_loop():
    x = layers.data("x", [2], append_batch_size=False)
    i = layers.fill_constant([1], "int64", 0)
    end = layers.fill_constant([1], "int64", 2)
    array = layers.array_write(x, i)
    going = layers.less_than(i, end)
    with layers.While(going).block():
        before = layers.array_read(array, i)
        layers.increment(i)
        layers.array_write(layers.scale(before, 2.0), i, array=array)
        layers.less_than(i, end, cond=going)
    last = layers.array_read(array, i)
    assert plan_of(fluid.default_main_program(), last) == [Where.COMPILED, Where.HOST]
    (found,) = Executor().run(feed={"x": np.float32([1, 2])}, fetch_list=[last])
    assert found.tolist() == [4, 8]


def test_ids_out_of_range_in_a_compiled_loop_are_found():
    x = layers.data("x", [1], dtype="int64", append_batch_size=False)
    array = layers.array_write(
        layers.data("first", [1, 1], append_batch_size=False), layers.fill_constant([1], "int64", 0)
    )
    found = counted(
        3, lambda i: layers.array_write(layers.embedding(layers.reshape(x + i, [1, 1]), [4, 1]), i, array=array)
    )
    executor = Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.array([1], "int64"), "first": np.zeros((1, 1), "float32")}
    executor.run(feed=feed, fetch_list=[found, array])
    feed["x"] += 1
    with pytest.raises(Exception, match=r"Ids.* is not in \[0, 4\)"):
        executor.run(feed=feed, fetch_list=[found, array])
