"""Recomputation: between checkpoints, backward ops read recomputed copies of the forward values.

The forward ops of a segment are appended again right before its gradients, on variables with a suffix. A
``recompute_barrier`` op passes the segment its inputs, tied to the incoming gradient, so that the compiler neither
merges the copies with the originals nor computes them early.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.variable import name_of


class RecomputedSegments:
    """Splits the forward ops of ``block`` at the checkpoints and recomputes each segment on demand."""

    def __init__(self, block: Block, checkpoints: Sequence[Any]):
        self.block = block
        self._segment_of: dict[int, int] = {}
        self._segments: list[list[Operator]] = [[]]
        self._copies: dict[int, Operator] = {}
        names = {name_of(v) for v in checkpoints}
        unknown = [name for name in sorted(names) if block.find_var_recursive(name) is None]
        if unknown:
            raise ValueError(f"checkpoints not found in the program: {', '.join(unknown)}")
        for op in block.ops:
            self._segment_of[id(op)] = len(self._segments) - 1
            self._segments[-1].append(op)
            if names.intersection(op.output_arg_names):
                self._segments.append([])
        self._last = len(self._segments) - 1

    def recomputed(self, op: Operator, gradients: list[str]) -> Operator:
        """Returns the copy of ``op`` to differentiate; the last segment needs none, as its values are still live."""
        index = self._segment_of.get(id(op), self._last)
        if index == self._last:
            return op
        if id(op) not in self._copies:
            self._recompute(index, gradients)
        return self._copies[id(op)]

    def _recompute(self, index: int, gradients: list[str]) -> None:
        ops = self._segments[index]
        written: set[str] = set()
        read: dict[str, None] = {}
        for op in ops:
            read.update(dict.fromkeys(name for name in op.input_arg_names if name not in written))
            written.update(op.output_arg_names)
        suffix = f".recompute_{index}"
        renamed = {name: self._copy_name(name, suffix) for name in {**read, **dict.fromkeys(written)}}
        self.block.append_op(
            type="recompute_barrier",
            inputs={"X": list(read), "After": gradients},
            outputs={"Out": [renamed[name] for name in read]},
        )
        originals = {twin: name for name, twin in renamed.items()}
        for op in ops:
            copy = self.block.append_op(
                type=op.type,
                inputs={slot: [renamed.get(n, n) for n in names] for slot, names in op.inputs.items()},
                outputs={slot: [renamed.get(n, n) for n in names] for slot, names in op.outputs.items()},
                attrs={name: value for name, value in op.attrs.items() if not name.startswith("op_role")},
            )
            copy.written_at = op.written_at
            copy.originals = originals
            self._copies[id(op)] = copy

    def _copy_name(self, name: str, suffix: str) -> str:
        source = self.block._var_recursive(name)
        twin = self.block.create_var(name=name + suffix, shape=source.shape, dtype=source.dtype)
        twin.lod_level, twin.stop_gradient = source.lod_level, source.stop_gradient
        return twin.name
