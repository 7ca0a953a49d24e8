"""IfElse: row-wise branches. Each row takes one of two branches, and the results are merged in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import NoneType

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.control.branches import ConditionalBlock
from paddle.fluid.layers._topics.core.append import append_single_op
from paddle.fluid.layers._topics.core.sub_block import parent_block
from paddle.fluid.layers._topics.tensor.create import assign
from refluid.ir import Variable, unique_name

__all__ = ["IfElse", "merge_lod_tensor", "split_lod_tensor"]


class IfElse:
    """Processes the rows of a batch in two branches, selected by a boolean per row::

    choice = fluid.layers.IfElse(cond)               # cond: [batch, 1]
    with choice.true_block():
        choice.output(fluid.layers.fc(choice.input(x), 8))
    with choice.false_block():
        choice.output(fluid.layers.fc(choice.input(x), 8))
    (out,) = choice()
    """

    OUT_IF_ELSE_BLOCKS, IN_IF_ELSE_TRUE_BLOCKS, IN_IF_ELSE_FALSE_BLOCKS = range(3)

    def __init__(self, cond, name=None):
        check_type(cond, "cond", Variable, "IfElse")
        check_type(name, "name", (str, NoneType), "IfElse")
        self.helper = LayerHelper("ifelse", name=name)
        self.cond = cond
        self.status = self.OUT_IF_ELSE_BLOCKS
        self.input_table: dict[str, tuple[Variable, Variable]] = {}
        self.output_table: tuple[list[Variable], list[Variable]] = ([], [])  # false rows, true rows
        self._branches = [ConditionalBlock([cond]) for _ in range(2)]

    def true_block(self):
        """Opens the branch that processes rows whose condition is true."""
        return self._block(self.IN_IF_ELSE_TRUE_BLOCKS)

    def false_block(self):
        """Opens the branch that processes the other rows."""
        return self._block(self.IN_IF_ELSE_FALSE_BLOCKS)

    @contextmanager
    def _block(self, status: int) -> Iterator[None]:
        if self.status != self.OUT_IF_ELSE_BLOCKS:
            raise ValueError("the blocks of an IfElse cannot be nested")
        self.status = status
        try:
            with self._branches[self._branch_index].block():
                yield
                if not self.output_table[self._branch_index]:
                    raise ValueError("a block of an IfElse must call output")
        finally:
            self.status = self.OUT_IF_ELSE_BLOCKS

    @property
    def _branch_index(self) -> int:
        return 1 if self.status == self.IN_IF_ELSE_TRUE_BLOCKS else 0

    def input(self, x) -> Variable:
        """Returns the rows of ``x`` that belong to the current block."""
        if self.status == self.OUT_IF_ELSE_BLOCKS:
            raise ValueError("IfElse.input must be called inside true_block or false_block")
        if x.name not in self.input_table:
            outside = parent_block()
            true, false = (
                outside.create_var(name=unique_name.generate("ifelse_input" + self.helper.name), dtype=x.dtype)
                for _ in range(2)
            )
            outside.append_op(
                type="split_lod_tensor",
                inputs={"X": [x], "Mask": [self.cond]},
                outputs={"OutTrue": [true], "OutFalse": [false]},
                attrs={"level": 0},
            )
            self.input_table[x.name] = (false, true)
        return self.input_table[x.name][self._branch_index]

    def output(self, *outs) -> None:
        """Declares the results of the block; both blocks must declare the same number."""
        if self.status == self.OUT_IF_ELSE_BLOCKS:
            raise ValueError("IfElse.output must be called inside true_block or false_block")
        for each in outs:
            check_type(each, "outs", Variable, "IfElse.output")
            name = unique_name.generate(f"{self.helper.name}_output")
            outside = parent_block().create_var(name=name, dtype=each.dtype)
            self.output_table[self._branch_index].append(outside)
            assign(each, outside)

    def __call__(self) -> list[Variable]:
        """Returns the results of both blocks, merged row by row."""
        if self.status != self.OUT_IF_ELSE_BLOCKS:
            raise ValueError("an IfElse must be called outside its blocks")
        false, true = self.output_table
        if not false and not true:
            raise ValueError("an IfElse needs true_block or false_block before it is called")
        if not false or not true:
            return false or true
        if len(false) != len(true):
            raise ValueError(
                f"true_block has {len(true)} outputs but false_block has {len(false)}; the numbers must match"
            )
        return [merge_lod_tensor(t, f, self.cond, self.cond) for t, f in zip(true, false, strict=True)]


def split_lod_tensor(input, mask, level=0) -> tuple[Variable, Variable]:
    """Splits ``input`` into the rows where ``mask`` is true and the others."""
    check_type(input, "input", Variable, "split_lod_tensor")
    check_variable_and_dtype(mask, "mask", ["bool"], "split_lod_tensor")
    outputs = {"OutTrue": input.dtype, "OutFalse": input.dtype}
    made = append_single_op("split_lod_tensor", {"X": input, "Mask": mask}, outputs, {"level": level})
    return made["OutTrue"], made["OutFalse"]


def merge_lod_tensor(in_true, in_false, x, mask, level=0) -> Variable:
    """Merges both parts back into the row order they had before `split_lod_tensor`."""
    check_variable_and_dtype(mask, "mask", ["bool"], "merge_lod_tensor")
    inputs = {"X": x, "Mask": mask, "InTrue": in_true, "InFalse": in_false}
    return append_single_op("merge_lod_tensor", inputs, {"Out": in_true.dtype}, {"level": level})["Out"]
