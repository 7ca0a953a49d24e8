"""Loops: While and its functional form while_loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.nested import map_structure, same_structure
from paddle.fluid.layers._topics.core.sub_block import open_block, step_scopes
from paddle.fluid.layers._topics.tensor.create import assign
from refluid.ir import Block, Variable, VarType
from refluid.ir.sub_blocks import crossing_names

__all__ = ["While", "while_loop"]


class While:
    """Runs its block while ``cond`` is true; the block must update ``cond``::

        loop = fluid.layers.While(cond)
        with loop.block():
            ...
            fluid.layers.less_than(i, n, cond=cond)

    A loop that keeps its shapes and needs no gradient is compiled; other loops run iteration by iteration.
    """

    def __init__(self, cond, is_test=False, name=None):
        self.helper = LayerHelper("while", name=name)
        _check_condition(cond, "While")
        self.cond_var = cond
        self.is_test = is_test

    @contextmanager
    def block(self) -> Iterator[None]:
        """Opens the loop body; layers inside belong to it."""
        with open_block(self.helper.main_program) as block:
            yield
            self._complete(block)

    def _complete(self, block: Block) -> None:
        outside = block.parent
        assert outside is not None
        condition = self.cond_var.name
        read, implied, written = crossing_names(block, [condition])
        op = outside.append_op(
            type="while",
            inputs={"X": read, "Condition": [condition]},
            outputs={"Out": list(dict.fromkeys([*written, condition])), "StepScopes": [step_scopes(outside)]},
            attrs={"sub_block": block, "is_test": self.is_test},
        )
        op.implied = {"X": implied}


def while_loop(cond, body, loop_vars, is_test=False, name=None):
    """Repeats ``loop_vars = body(*loop_vars)`` while ``cond(*loop_vars)`` is true."""
    if not callable(cond) or not callable(body):
        raise TypeError("while_loop: cond and body must be callable")
    check_type(loop_vars, "loop_vars", (list, tuple), "while_loop")
    if not loop_vars:
        raise ValueError("while_loop: loop_vars is empty")
    going: Any = cond(*loop_vars)
    _check_condition(going, "while_loop")
    loop = While(going, is_test, name)
    with loop.block():
        results = body(*map_structure(lambda variable: variable, list(loop_vars)))
        results = list(results) if isinstance(results, list | tuple) else [results]
        if not same_structure(results, list(loop_vars)):
            raise ValueError("while_loop: body must return the same structure of variables as loop_vars")
        still_going: Any = cond(*results)
        map_structure(assign, results, list(loop_vars))
        assign(still_going, going)
    return loop_vars


def _check_condition(cond, layer: str) -> None:
    if not isinstance(cond, Variable):
        raise TypeError(f"{layer}: the condition must be a variable, not {type(cond).__name__}")
    if cond.dtype != VarType.BOOL or math.prod(cond.shape) != 1:
        raise TypeError(
            f"{layer}: the condition must be a single boolean, but {cond.name} is {cond.dtype.name}{list(cond.shape)}"
        )
