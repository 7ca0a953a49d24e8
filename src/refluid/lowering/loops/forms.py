"""Loops that step through sequences, recognized by the operators they consist of.

A DynamicRNN becomes a `while` over arrays of tensors. The loop can be compiled if each array is read and written as a
DynamicRNN does: arrays of steps are read at the counter, memories are read at the counter and written one position
further, results are written at the counter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.vartype import VarType


@dataclass(frozen=True)
class Memory:
    """A state: its array, the names it is read under, and the name of its next value."""

    array: str
    reads: tuple[str, ...]
    after: str


@dataclass(frozen=True)
class StepForm:
    """A loop over the steps of the sequences in ``table``.

    inputs: arrays of steps, each with the names it is read under. outputs: arrays of results, each with the name that
    is written to it. body: the other operators of the block.
    """

    table: str
    counter: str
    inputs: dict[str, tuple[str, ...]]
    memories: tuple[Memory, ...]
    outputs: dict[str, str]
    body: tuple[Operator, ...]


def step_form(operator: Operator) -> StepForm | None:
    """The form of a `while`, or of its gradient, if it steps through sequences."""
    block: Block = operator.attrs["sub_block"]
    outside = operator.block.ops
    loop = next((op for op in outside if op.type == "while" and op.attrs["sub_block"] is block), None)
    if loop is None:
        return None
    before = outside[: next(i for i, op in enumerate(outside) if op is loop)]
    return _Recognition(loop, block, before).form()


def is_differentiated(loop: Operator) -> bool:
    """Whether a gradient operator runs the loop's block as well."""
    block = loop.attrs["sub_block"]
    return any(op.type == "while_grad" and op.attrs["sub_block"] is block for op in loop.block.ops)


class _Recognition:
    """An attempt to recognize a `while` as a loop over steps."""

    def __init__(self, loop: Operator, block: Block, before: Sequence[Operator]):
        self.loop, self.block, self.before = loop, block, before
        # An inner loop has its own arrays.
        self.reads = [op for op in block.ops if op.type == "read_from_array" and op.input("X")[0] not in block.vars]
        self.writes = [op for op in block.ops if op.type == "write_to_array" and op.output("Out")[0] not in block.vars]
        moving = {id(op) for op in (*self.reads, *self.writes)}
        self.body = tuple(op for op in block.ops if id(op) not in moving)

    def form(self) -> StepForm | None:
        counted = self._counter()
        if counted is None:
            return None
        counter, advance, table = counted
        position = {id(op): i for i, op in enumerate(self.block.ops)}
        late = {id(op) for op in self.block.ops if position[id(op)] > position[id(advance)]}
        if any(op.input("I") != [counter] or id(op) in late for op in self.reads):
            return None
        if any(op.input("I") != [counter] for op in self.writes):
            return None
        kept = {op.output("Out")[0]: op for op in self.writes if id(op) in late}
        results = {op.output("Out")[0]: op for op in self.writes if id(op) not in late}
        read: dict[str, tuple[str, ...]] = {}
        for op in self.reads:
            read[op.input("X")[0]] = (*read.get(op.input("X")[0], ()), op.output("Out")[0])
        inputs = {array: names for array, names in read.items() if array not in kept}
        if len(kept) + len(results) != len(self.writes):
            return None
        if not kept.keys() <= read.keys() or results.keys() & read.keys():
            return None
        if not all(self._holds_steps(array, table) for array in inputs):
            return None
        if not all(self._holds_one(array) for array in kept) or any(self._writers(array) for array in results):
            return None
        if not self._is_self_contained(counter, {*kept, *results}):
            return None
        memories = tuple(Memory(array, read[array], op.input("X")[0]) for array, op in kept.items())
        written = {array: op.input("X")[0] for array, op in results.items()}
        return StepForm(table, counter, inputs, memories, written, self.body)

    def _counter(self) -> tuple[str, Operator, str] | None:
        """The counter, the op that advances it, and the rank table whose longest sequence ends the loop."""
        (condition,) = self.loop.input("Condition")
        tests = [*self._writers(condition), *self._inner_writers(condition)]
        if len(tests) != 2 or any(op.type != "less_than" for op in tests) or tests[0].inputs != tests[1].inputs:
            return None
        (counter,), (limit,) = tests[1].input("X"), tests[1].input("Y")
        advances, limits = self._inner_writers(counter), self._writers(limit)
        if len(advances) != 1 or advances[0].type != "increment" or advances[0].attr("step") != 1:
            return None
        if self.block.ops.index(advances[0]) > self.block.ops.index(tests[1]):
            return None
        if self._inner_writers(limit) or len(limits) != 1 or limits[0].type != "max_sequence_len":
            return None
        if not self._is_zero(counter):
            return None
        return counter, advances[0], limits[0].input("RankTable")[0]

    def _inner_writers(self, name: str) -> list[Operator]:
        return [op for op in self.block.ops if name in op.output_arg_names]

    def _writers(self, name: str) -> list[Operator]:
        return [op for op in self.before if name in op.output_arg_names]

    def _is_zero(self, name: str) -> bool:
        writers = self._writers(name)
        if len(writers) != 1 or writers[0].type != "fill_constant":
            return False
        return float(writers[0].attrs.get("str_value") or writers[0].attrs.get("value", 0.0)) == 0

    def _holds_steps(self, array: str, table: str) -> bool:
        writers = self._writers(array)
        return (
            len(writers) == 1 and writers[0].type == "lod_tensor_to_array" and writers[0].input("RankTable") == [table]
        )

    def _holds_one(self, array: str) -> bool:
        writers = self._writers(array)
        return len(writers) == 1 and writers[0].type == "write_to_array" and self._is_zero(writers[0].input("I")[0])

    def _is_self_contained(self, counter: str, arrays: set[str]) -> bool:
        """Whether the rest of the block uses no arrays and writes nothing else outside."""
        local = set(self.block.vars)
        for op in self.body:
            names = {*op.input_arg_names, *op.output_arg_names}
            if any(self._is_array(name) for name in names if name not in local):
                return False
        left = {*arrays, counter, *self.loop.input("Condition")}
        return left.issuperset(self.loop.output("Out"))

    def _is_array(self, name: str) -> bool:
        variable = self.block.find_var_recursive(name)
        return variable is not None and variable.type == VarType.LOD_TENSOR_ARRAY
