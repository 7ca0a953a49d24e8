"""Conditionals: ConditionalBlock, Switch, and the functional forms cond, case and switch_case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import NoneType
from typing import Any

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.nested import map_structure, same_structure
from paddle.fluid.layers._topics.core.sub_block import open_block, parent_block, step_scopes
from paddle.fluid.layers._topics.tensor.compare import equal, logical_and, logical_not  # pyright: ignore[reportAttributeAccessIssue]
from paddle.fluid.layers._topics.tensor.create import assign, cast, fill_constant
from refluid.ir import Block, Variable, VarType
from refluid.ir.sub_blocks import crossing_names

__all__ = ["ConditionalBlock", "Switch", "case", "cond", "select_input", "select_output", "switch_case"]


class ConditionalBlock:
    """Runs the layers inside ``with conditional.block():`` only if the condition is true.

    Args:
      inputs: a list that holds the condition.
      is_scalar_condition: whether the condition is a single boolean; otherwise it has one per row.
    """

    def __init__(self, inputs, is_scalar_condition=False, name=None):
        for each in inputs:
            check_type(each, "inputs", Variable, "ConditionalBlock")
        self.inputs = inputs
        self.is_scalar_condition = is_scalar_condition
        self.helper = LayerHelper("conditional_block", name=name)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Opens the branch; layers inside belong to it."""
        with open_block(self.helper.main_program) as block:
            yield
            self._complete(block)

    def _complete(self, block: Block) -> None:
        outside = block.parent
        assert outside is not None
        read, implied, written = crossing_names(block)
        op = outside.append_op(
            type="conditional_block",
            inputs={"Cond": self.inputs, "Input": read},
            outputs={"Out": written, "Scope": [step_scopes(outside)]},
            attrs={"sub_block": block, "is_scalar_condition": self.is_scalar_condition},
        )
        op.implied = {"Input": implied}


class Switch:
    """Runs the first case whose condition is true::

    with fluid.layers.Switch() as switch:
        with switch.case(step < warmup):
            fluid.layers.assign(small, rate)
        with switch.default():
            fluid.layers.assign(large, rate)
    """

    def __init__(self, name=None):
        self.helper = LayerHelper("switch", name=name)
        self.inside_scope = False
        self._none_before: Variable | None = None  # true if no earlier condition is

    def case(self, condition):
        """Opens a block that runs if this is the first true condition."""
        if not self.inside_scope:
            raise ValueError("Switch.case must be called inside `with Switch() as switch:`")
        check_variable_and_dtype(condition, "condition", ["bool"], "Switch.case")
        before, fails = self._none_before, logical_not(condition)
        if before is None:
            self._none_before = fails
            return ConditionalBlock([condition], is_scalar_condition=True).block()
        self._none_before = logical_and(before, fails)
        return ConditionalBlock([logical_and(before, condition)], is_scalar_condition=True).block()

    def default(self):
        """Opens a block that runs if no condition is true."""
        if self._none_before is None:
            raise ValueError("Switch.default must come after at least one case")
        return ConditionalBlock([self._none_before], is_scalar_condition=True).block()

    def __enter__(self):
        self.inside_scope = True
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.inside_scope = False


def cond(pred, true_fn=None, false_fn=None, name=None):
    """Returns ``true_fn()`` if ``pred`` is true, else ``false_fn()``; both return the same structure of variables."""
    check_variable_and_dtype(pred, "pred", ["bool"], "cond")
    check_type(name, "name", (str, NoneType), "cond")
    LayerHelper("cond", name=name)
    if_true = None if true_fn is None else _branch(pred, true_fn, "true_fn")
    if_false = None if false_fn is None else _branch(logical_not(pred), false_fn, "false_fn")
    if if_true is None and if_false is None:
        return None
    if not same_structure(if_true, if_false):
        raise ValueError("cond: true_fn and false_fn must return the same structure of variables")
    mask = cast(pred, "int32")
    return map_structure(lambda false, true: select_input([false, true], mask), if_false, if_true)


def _branch(holds: Variable, function: Callable[[], Any], argument: str) -> Any:
    """Builds one branch and returns its results as variables of the enclosing block."""
    if not callable(function):
        raise TypeError(f"cond: {argument} must be callable, not {type(function).__name__}")
    with ConditionalBlock([holds], is_scalar_condition=True).block():
        results = function()
        return None if results is None else map_structure(_copy_out, results)


def _copy_out(variable: Variable | None) -> Variable | None:
    if variable is None:
        return None
    copy = parent_block().create_var(dtype=variable.dtype, shape=variable.shape, type=variable.type)
    assign(variable, copy)
    return copy


def case(pred_fn_pairs, default=None, name=None):
    """Calls the function of the first true predicate; if none is true, ``default`` or the last function."""
    check_type(pred_fn_pairs, "pred_fn_pairs", (list, tuple), "case")
    for pair in pred_fn_pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"case: pred_fn_pairs must hold (variable, function) pairs, not {pair!r}")
        if not isinstance(pair[0], Variable) or not callable(pair[1]):
            raise TypeError("case: pred_fn_pairs must hold (boolean variable, function) pairs")
    pairs = list(pred_fn_pairs)
    if default is None:
        default = pairs.pop()[1]
    elif not callable(default):
        raise TypeError("case: default must be callable")
    chosen = default
    for pred, function in reversed(pairs):
        chosen = partial(cond, pred=pred, true_fn=function, false_fn=chosen)
    return chosen()


def switch_case(branch_index, branch_fns, default=None, name=None):
    """Calls the function with index ``branch_index``; if there is none, ``default`` or the last function.

    Args:
      branch_fns: functions or (integer, function) pairs, in a list, a tuple or a dict.
    """
    check_variable_and_dtype(branch_index, "branch_index", ["uint8", "int32", "int64"], "switch_case")
    check_type(branch_fns, "branch_fns", (list, tuple, dict), "switch_case")
    if branch_index.dtype != VarType.INT64:
        branch_index = cast(branch_index, "int64")
    functions = _numbered(branch_fns)
    if default is None:
        *functions, (_, default) = sorted(functions, key=lambda pair: pair[0])
    elif not callable(default):
        raise TypeError("switch_case: default must be callable")
    pairs = [(equal(branch_index, fill_constant([1], "int64", index)), function) for index, function in functions]
    chosen = default
    for pred, function in pairs:
        chosen = partial(cond, pred=pred, true_fn=function, false_fn=chosen)
    return chosen()


def _numbered(branch_fns: Any) -> list[tuple[int, Callable[[], Any]]]:
    pairs = list(branch_fns.items()) if isinstance(branch_fns, dict) else list(branch_fns)
    if all(callable(each) for each in pairs):
        pairs = list(enumerate(pairs))
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], int) or not callable(pair[1]):
            raise TypeError(f"switch_case: branch_fns must hold functions or (integer, function) pairs, not {pair!r}")
    if len({index for index, _ in pairs}) != len(pairs):
        raise ValueError("switch_case: branch_fns has a duplicate index")
    return pairs


def select_input(inputs, mask) -> Variable:
    """Returns ``inputs[mask]``, where ``mask`` is an int32 of shape [1]."""
    check_type(inputs, "inputs", (list, tuple), "select_input")
    check_variable_and_dtype(mask, "mask", ["int32"], "select_input")
    helper = LayerHelper("select_input")
    first = inputs[0]
    out = helper.create_variable(dtype=first.dtype, shape=first.shape, type=first.type)
    helper.append_op(type="select_input", inputs={"X": list(inputs), "Mask": [mask]}, outputs={"Out": [out]})
    return out


def select_output(input, outputs, mask):
    """Copies ``input`` to ``outputs[mask]``, where ``mask`` is an int32 of shape [1]."""
    check_type(input, "input", Variable, "select_output")
    check_type(outputs, "outputs", (list, tuple), "select_output")
    check_variable_and_dtype(mask, "mask", ["int32"], "select_output")
    helper = LayerHelper("select_output")
    helper.append_op(type="select_output", inputs={"X": [input], "Mask": [mask]}, outputs={"Out": list(outputs)})
    return outputs
