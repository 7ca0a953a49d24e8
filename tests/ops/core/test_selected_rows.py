"""Ops on SelectedRows that scopes hold: gradients, and parameters, that are a few rows of a table."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.op import Operator
from refluid.errors import OpError

ROWS = fluid.core.VarDesc.VarType.SELECTED_ROWS


def hold(name, rows, height=4):
    held = fluid.global_scope().var(name).get_selected_rows()
    held.set_rows(rows)
    held.set_height(height)
    held.get_tensor().set(np.arange(2 * len(rows), dtype="float32").reshape(-1, 2) + 1, fluid.CPUPlace())
    return held


def run(op_type, out="out", **arguments):
    """Runs an op that writes selected rows; returns their numbers and values."""
    result = fluid.global_scope().var(out).get_selected_rows()
    Operator(op_type, **arguments).run(fluid.global_scope(), fluid.CPUPlace())
    return result.rows(), np.array(result.get_tensor()).tolist()


@pytest.mark.parametrize(
    "op_type, attrs, rows, values",
    [
        ("scale", {"scale": 2.0}, [1, 0, 1], [[2, 4], [6, 8], [10, 12]]),
        ("assign", {}, [1, 0, 1], [[1, 2], [3, 4], [5, 6]]),
        ("square", {}, [1, 0, 1], [[1, 4], [9, 16], [25, 36]]),
        ("clip", {"min": 0.0, "max": 5.0}, [0, 1], [[3, 4], [5, 5]]),
        ("clip_by_norm", {"max_norm": 125**0.5 / 5}, [0, 1], [[0.6, 0.8], [1.2, 1.6]]),
    ],
)
def test_an_op_of_rows_gives_rows(op_type, attrs, rows, values):
    hold("x", [1, 0, 1])
    found, result = run(op_type, X="x", Out="out", **attrs)
    assert found == rows
    assert np.array(result) == pytest.approx(np.array(values), rel=1e-6)


def test_a_sum_of_rows_has_each_row_once():
    hold("x", [1, 0, 1])
    hold("y", [3])
    assert run("sum", X=["x", "y"], Out="out") == ([0, 1, 3], [[3, 4], [6, 8], [1, 2]])


def test_a_sum_that_need_not_merge_keeps_repeated_rows():
    hold("x", [1, 0, 1])
    hold("y", [3])
    rows, values = run("sum", X=["x", "y"], Out="out", merges_rows=False)
    assert (rows, values) == ([1, 0, 1, 3], [[1, 2], [3, 4], [5, 6], [1, 2]])


def test_rows_that_a_program_changes_in_every_run_stay_readable():
    block = fluid.default_main_program().global_block()
    x = block.create_var(name="x", dtype="float32", shape=[4, 2], persistable=True, type=ROWS)
    block.append_op(type="scale", inputs={"X": x}, outputs={"Out": x}, attrs={"scale": 2.0})
    held = hold("x", [1, 0, 1])
    values = held.get_tensor()
    exe = fluid.Executor(fluid.CPUPlace())
    for _ in range(3):
        exe.run()
    assert np.array(values).tolist() == [[8, 16], [24, 32], [40, 48]]
    assert fluid.global_scope().find_var("x").get_selected_rows() is held


def test_sgd_updates_a_parameter_of_rows():
    hold("param", [3, 1, 0, 2])
    hold("grad", [1, 0, 1])
    fluid.global_scope().var("rate").get_tensor().set(np.float32([0.5]), fluid.CPUPlace())
    found, values = run("sgd", "param", Param="param", Grad="grad", LearningRate="rate", ParamOut="param")
    assert found == [3, 1, 0, 2]
    assert values == [[1, 2], [0, 0], [3.5, 4], [7, 8]]


def test_sgd_refuses_a_row_that_the_parameter_does_not_have():
    hold("param", [3, 2])
    hold("grad", [1])
    fluid.global_scope().var("rate").get_tensor().set(np.float32([0.5]), fluid.CPUPlace())
    with pytest.raises(OpError, match="sgd: Param does not hold every row of Grad"):
        run("sgd", "param", Param="param", Grad="grad", LearningRate="rate", ParamOut="param")


def test_a_dense_gradient_of_a_parameter_of_rows_is_refused():
    hold("param", [3, 2])
    for name, value in (("rate", [0.5]), ("grad", np.ones((4, 2)))):
        fluid.global_scope().var(name).get_tensor().set(np.float32(value), fluid.CPUPlace())
    with pytest.raises(OpError, match="Param is SelectedRows, so Grad must be, too"):
        run("sgd", "param", Param="param", Grad="grad", LearningRate="rate", ParamOut="param")


def test_rows_whose_shape_is_not_known_are_merged():
    block = fluid.default_main_program().global_block()
    x = block.create_var(name="x", dtype="float32", persistable=True, type=ROWS)
    merged = fluid.layers.merge_selected_rows(x)
    values = fluid.layers.get_tensor_from_selected_rows(merged)
    assert merged.type == ROWS
    hold("x", [1, 0, 1])
    found = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[values])[0]
    assert found.tolist() == [[3, 4], [6, 8]]
