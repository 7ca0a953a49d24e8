"""Which operators cannot be compiled and run on the host, between compiled pieces.

An op's definition says whether it always does (``host=True``), or names what to determine from the program: whether a
loop or a branch has a form that XLA can express, or whether the length of an array is known while tracing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.lowering.folding import foldable_operators, is_list, known_around
from refluid.lowering.loops.arrays import ARRAY_OPS, ArrayForm, array_form
from refluid.lowering.loops.forms import StepForm, is_differentiated, step_form
from refluid.ops.core.infer import ShapeDtype, infer_outputs

_KNOWN = 0  # no operator has this id


@dataclass(frozen=True)
class HostOps:
    """Which operators run on the host, given the loops known to need it (by the index of their block)."""

    eager_loops: frozenset[int] = frozenset()
    padded: bool = True  # whether sequences may have padding rows

    def host_operators(
        self, ops: Sequence[Operator], folded: frozenset[int], outside: frozenset[str] = frozenset()
    ) -> set[int]:
        """The ids of the operators that run on the host.

        This includes operators with an array attribute, which would become a constant of the compiled code.
        """
        makers: dict[str, int] = dict.fromkeys(outside, _KNOWN)
        folded = folded | {_KNOWN}
        on_host: set[int] = set()
        for op in ops:
            unknown = any(makers.get(n) not in folded for slot in op.definition.static for n in op.input(slot))
            if self.runs_on_host(op) or unknown or any(isinstance(v, np.ndarray) for v in op.attrs.values()):
                on_host.add(id(op))
            makers.update(dict.fromkeys(op.output_arg_names, id(op)))
        return on_host

    def runs_on_host(self, op: Operator) -> bool:
        """Whether this operator cannot be compiled."""
        host = op.definition.host
        if not self.padded and op.definition.may_find_rows(op.described_inputs()):
            return True
        if isinstance(host, str):
            return _QUESTIONS[host](self, op)
        return host(op.attrs, frozenset(op.inputs)) if callable(host) else host

    def loop_form(self, op: Operator) -> StepForm | ArrayForm | None:
        """The form in which a `while`, or its gradient, is compiled other than by `lax.while_loop`, if there is one."""
        block: Block = op.attrs["sub_block"]
        if block.idx in self.eager_loops:
            return None
        inside = replace(self, padded=True)  # in loops of these forms, rows that have ended are padding
        steps = step_form(op)
        if steps is not None and not inside._needs_host(steps.body, block):
            return steps
        arrays = array_form(op)
        return arrays if arrays is not None and inside._compiles_with_arrays(block) else None

    def _loop_needs_host(self, op: Operator) -> bool:
        """Whether a loop has no form that compiles: lax.while_loop has fixed shapes and no gradient."""
        if self.loop_form(op) is not None:
            return False
        block: Block = op.attrs["sub_block"]
        carried = {*op.input("X"), *op.input("Condition")}
        if op.type == "while_grad" or is_differentiated(op) or not self._compiles(block):
            return True
        return not carried.issuperset(op.output("Out")) or not _keeps_shapes(block, op.output("Out"))

    def _branch_needs_host(self, op: Operator) -> bool:
        """Whether lax.cond cannot express a conditional block.

        A variable without an earlier value becomes zeros if the branch is not taken; nothing may read it then. A
        variable that may have an earlier value, but is not an input, keeps it on the host only.
        """
        block: Block = op.attrs["sub_block"]
        if not op.attrs.get("is_scalar_condition", False) or not self._compiles(block):
            return True
        written = op.input("Out") or op.output("Out")
        return any(_may_hold_value(op, name) for name in written if name not in op.input("Input"))

    def _comes_from_host(self, op: Operator) -> bool:
        """Whether the array ``X`` is a list filled by a loop on the host, one tensor for each step of the batch."""
        (name,) = op.input("X")
        return any(self.runs_on_host(each) for each in op.block.ops if name in each.output_arg_names)

    def _has_unknown_sizes(self, op: Operator) -> bool:
        """Whether the number of tensors in the array ``X`` depends on values, or they may have padding."""
        (name,), block = op.input("X"), op.block
        writes = [each for each in block.ops if each.type == "write_to_array" and name in each.output_arg_names]
        return not is_list(op) or any(block._var_recursive(each.input("X")[0]).lod_level for each in writes)

    def _needs_host(self, ops: Sequence[Operator], block: Block) -> bool:
        """Whether any of these operators of a block cannot be compiled."""
        outside = known_around(block)
        return bool(self.host_operators(ops, foldable_operators(ops, outside), outside))

    def _compiles(self, block: Block) -> bool:
        """Whether nothing in a block needs the host."""
        return not self._needs_host(block.ops, block) and all(
            self._compiles(inner) for op in block.ops if not op.definition.host for inner in op.sub_blocks()
        )

    def _compiles_with_arrays(self, block: Block) -> bool:
        """Whether a block needs values for nothing but positions in arrays."""
        others = [op for op in block.ops if op.type not in ARRAY_OPS and op.definition.host != "branch"]
        if self._needs_host(others, block):
            return False
        branches = [op for op in block.ops if op.definition.host == "branch"]
        return all(
            op.attrs.get("is_scalar_condition") and self._compiles_with_arrays(op.attrs["sub_block"]) for op in branches
        )


# How to decide where a definition's ``host`` depends on the program.
_QUESTIONS = {
    "loop": HostOps._loop_needs_host,
    "branch": HostOps._branch_needs_host,
    "loop_array": HostOps._comes_from_host,
    "array_sizes": HostOps._has_unknown_sizes,
}


def _may_hold_value(op: Operator, name: str) -> bool:
    outer = op.block
    if outer.parent is not None:
        return name not in outer.vars
    return outer.may_hold(name, before=op.attrs["sub_block"])


def _keeps_shapes(block: Block, names: Sequence[str]) -> bool:
    """Whether the shapes of the variables are known and the same after every iteration."""
    after: dict[str, ShapeDtype] = {}
    for inner in block.ops:
        described = inner.described_inputs()
        for slot, values in described.items():
            described[slot] = [after.get(n, v) for n, v in zip(inner.input(slot), values, strict=True)]
        found = infer_outputs(inner.definition, described, inner.attrs)
        if found is None:
            return False
        after.update((n, v) for slot, values in found.items() for n, v in zip(inner.output(slot), values, strict=False))
    known = {name: block._var_recursive(name).shape for name in names}
    return all(-1 not in shape and (name not in after or after[name].shape == shape) for name, shape in known.items())
