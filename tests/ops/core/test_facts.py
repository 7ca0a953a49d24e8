"""What other rooms need to know about an op is declared with the op, so that a new one is one edit."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OutOfRangeError
from refluid.executor import Executor
from refluid.ops.core import registry
from refluid.ops.core.registry import all_types, lookup, op
from refluid.transpiler.parts import take_apart


@pytest.fixture
def new_op(monkeypatch):
    """Registers ops for the length of a test."""
    monkeypatch.setattr(registry, "_OPS", dict(registry._OPS))
    return op


def trained(update):
    """A program with one parameter, which ``update`` updates."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.layers.data("x", [4])
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(x, 8, bias_attr=False)))
    for each in main.global_block().ops:
        each.type = update if each.type == "sgd" else each.type
    return main


@pytest.mark.parametrize("slices", ["rows", None])
def test_a_new_optimizer_is_sliced_over_servers_if_it_says_that_it_works_on_rows(new_op, slices):
    @new_op("halve", inputs="Param Grad LearningRate", outputs="ParamOut", grad=None, slices=slices)
    def halve(param, grad, rate):
        return param / 2

    (update,) = take_apart(trained("halve")).updates
    assert update.sliceable == (slices == "rows")


@pytest.mark.parametrize("moves", [True, False])
def test_ids_behind_an_op_that_moves_values_are_checked_where_they_are_fed(new_op, moves):
    @new_op("turn_over", inputs="X", outputs="Out", grad=None, moves_values=moves)
    def turn_over(x):
        return x[::-1]

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64")
        block = main.global_block()
        turned = block.create_var(name="turned", dtype="int64", shape=[-1, 1])
        block.append_op(type="turn_over", inputs={"X": ids}, outputs={"Out": turned})
        rows = fluid.layers.embedding(turned, [3, 2])
    executor = Executor()
    executor.run(startup)
    with pytest.raises(OutOfRangeError, match="id 7 at" if moves else "a computed id"):
        executor.run(main, feed={"ids": np.array([[7], [0]], "int64")}, fetch_list=[rows])


def test_slots_that_facts_name_are_slots_of_the_op():
    for definition in map(lookup, all_types()):
        slots = {*definition.input_names, *definition.output_names}
        named = {*(definition.overwrites or ()), *([definition.matrix] if definition.matrix else [])}
        assert named <= slots, definition.type
