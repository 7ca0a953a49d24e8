"""Copies operators of a training program for the slices that a server holds, with their names and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refluid.ir import OP_ROLE, Block, Operator, OpRole, Program, Variable
from refluid.ir.slices import Slice
from refluid.transpiler.copying import copy_operator
from refluid.transpiler.parts import Parts, Update
from refluid.transpiler.placement import Placed


@dataclass(frozen=True)
class Held:
    """A slice of a parameter that a server holds."""

    placed: Placed
    update: Update
    index: int
    alone: bool  # whether it is the only slice of its parameter on the server
    sent: str  # the variable of the training program that trainers push as its gradient

    @property
    def param(self) -> str:
        return self.placed.param

    @property
    def slice(self) -> Slice:
        return self.placed.slices[self.index]

    @property
    def grad(self) -> str:
        return self.placed.grad_names[self.index]

    def local(self, name: str) -> str:
        """The name of a variable of the update for this slice: Fluid's, unless two slices would share it."""
        if name == self.param:
            return self.slice.name
        if name in (self.update.grad, self.sent):
            return self.grad
        return name if self.alone else f"{name}.block{self.index}"

    def part_of(self, variable: Variable, name: str) -> Slice:
        """This slice's part of a variable of the update: the same rows, or all of a variable without these rows."""
        shape = variable.shape or (1,)
        if shape[0] != self.update.param.shape[0]:
            return Slice(name, variable.name, 0, shape[0], shape, self.slice.endpoint)
        whole = (self.slice.whole_shape[0], *shape[1:])
        return Slice(name, variable.name, self.slice.start, self.slice.end, whole, self.slice.endpoint)


class SliceCopier:
    """Copies operators into a server's program, whose variables are all in block 0.

    ``renamed`` maps variables to the names that operators read instead: sums over all servers.
    """

    def __init__(self, source: Program, parts: Parts, held: Sequence[Held], renamed: Mapping[str, str]):
        self.program = Program()
        self.program.random_seed = source.random_seed
        self.slices: dict[str, Slice] = {}  # of persistable variables, by name
        self._source, self._parts = source.global_block(), parts
        self._held, self._renamed = held, renamed

    def owning(self, name: str) -> list[Held]:
        """This server's slices of the parameter that a variable belongs to."""
        owner = self._parts.owner(name)
        return [held for held in self._held if held.param == owner]

    def source_dtype(self, name: str) -> Any:
        return self._source.var(name).dtype

    def declare(self, name: str, shape: Sequence[int], dtype: Any, **options: Any) -> str:
        """Declares a variable that the training program does not have."""
        self.program.global_block().create_var(name=name, shape=shape, dtype=dtype, **options)
        return name

    def declare_copy(self, name: str, new: str, held: Held | None) -> None:
        """Declares ``new``, which stands for ``name`` of the training program, or for the rows of it in a slice."""
        if new in self.program.global_block().vars:
            return
        variable = self._source.var(name)
        if held is None:
            part = Slice(new, name, 0, (variable.shape or (1,))[0], variable.shape or (1,))
        else:
            part = held.part_of(variable, new)
        shape = part.shape if variable.shape else ()
        self.declare(new, shape, variable.dtype, type=variable.type, persistable=variable.persistable)
        if variable.persistable:
            self.slices[new] = part

    def copy(self, op: Operator, block: Block, held: Held | None = None) -> Operator:
        """Copies an operator for one slice, or for all that a server holds."""
        written = op.output_arg_names

        def rename(name: str) -> list[str]:
            if name in self._renamed and name not in written:
                return [self._renamed[name]]
            if self._parts.owner(name) is None:
                names = {name: None}
            else:
                names = {each.local(name): each for each in ([held] if held is not None else self.owning(name))}
            for new, slice_of in names.items():
                if name in self._source.vars:
                    self.declare_copy(name, new, slice_of)
            return list(names)

        return copy_operator(op, block, rename)

    def append(
        self,
        block: Block,
        type: str,
        inputs: Mapping[str, Any],
        out: str,
        attrs: Mapping[str, Any] | None = None,
        role: OpRole = OpRole.Optimize,
    ) -> str:
        """Appends an operator that the training program does not have."""
        block.append_op(type=type, inputs=inputs, outputs={"Out": out}, attrs={OP_ROLE: int(role), **(attrs or {})})
        return out
