"""What a server runs: a listen_and_serv operator over blocks that update the slices it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refluid.ir import OP_ROLE, OP_ROLE_VAR, Block, Operator, OpRole, Program, Variable, VarType
from refluid.ir.slices import SLICES, Slice
from refluid.transpiler.clipping import Clipping, plan_clipping, spell_out_norms, total_name
from refluid.transpiler.config import Mode
from refluid.transpiler.copying import copy_operator
from refluid.transpiler.gradients import Gradients, gradients_on_trainer
from refluid.transpiler.parts import Parts, Update, take_apart
from refluid.transpiler.placement import Placed, Placement

TRAINER_ID = "@TRAINER_ID@"


@dataclass(frozen=True)
class ServerProgram:
    """Turns a training program into that of the server at ``endpoint``.

    Block 0 holds listen_and_serv and all variables. Then come a block for the learning rates and one for what clipping
    must know before any update, where the program has such, and one block for every slice of a parameter.
    """

    placement: Placement
    endpoint: str
    dc_asgd: bool = False

    def apply(self, program: Program) -> Program:
        if self.placement.mode is Mode.SYNC:
            sliced = [placed.param for placed in self.placement.params if len(placed.slices) > 1]
            program = spell_out_norms(program, sliced)
        return _Writer(self, program).write()


@dataclass(frozen=True)
class Held:
    """A slice of a parameter that a server holds."""

    placed: Placed
    update: Update
    index: int
    alone: bool  # whether it is the only slice of its parameter there

    @property
    def slice(self) -> Slice:
        return self.placed.slices[self.index]

    @property
    def grad(self) -> str:
        return self.placed.grad_names[self.index]

    def local(self, name: str) -> str:
        """What a variable of the update is called for this slice: as in Fluid, unless two slices would share it."""
        return name if self.alone else f"{name}.block{self.index}"

    def part_of(self, variable: Variable, name: str) -> Slice:
        """What this slice has of a variable of the update: the same rows, or all of what has no such rows."""
        rows, shape = self.slice.whole_shape[0], variable.shape or (1,)
        bounds = (self.slice.start, self.slice.end) if shape[0] == rows else (0, shape[0])
        return Slice(name, variable.name, *bounds, shape)


class _Writer:
    """Writes one server's program."""

    def __init__(self, options: ServerProgram, source: Program):
        self._options, self._placement = options, options.placement
        self._source = source.global_block()
        self._parts: Parts = take_apart(source)
        self._gradients: Gradients = gradients_on_trainer(self._parts, self._placement.mode)
        self._on_trainer = {id(op) for op in self._gradients.ops}
        self._clipping: Clipping = plan_clipping(self._parts, self._placement) if self._sync else _NO_CLIPPING
        self._held = list(self._slices_here())
        self._program = Program()
        self._main = self._program.global_block()
        self._slices: dict[str, Slice] = {}

    @property
    def _sync(self) -> bool:
        return self._placement.mode is Mode.SYNC

    def _slices_here(self):
        for update in self._parts.updates:
            placed = self._placement.of(update.param.name)
            here = placed.on(self._options.endpoint)
            yield from (Held(placed, update, index, len(here) == 1) for index in here)

    def write(self) -> Program:
        self._declare_parameters()
        blocks: list[Block] = []
        schedule = None
        if self._parts.schedule:
            schedule = self._new_block(blocks)
            for op in self._parts.schedule:
                self._copy(op, schedule)
        clipped = {id(op) for op in self._clipping.ops}
        if clipped and self._options.endpoint in self._clipping.servers:
            self._write_clipping(self._new_block(blocks), clipped)
        elif not self._sync:
            self._write_constants(blocks)
        grad_to_block = []
        for held in self._held:
            block = self._new_block(blocks)
            grad_to_block.append(f"{held.grad}:{block.idx}")
            self._write_update(held, block, clipped)
        self._append_listen(blocks, schedule, grad_to_block)
        return self._program

    def _new_block(self, blocks: list[Block]) -> Block:
        block = self._program._create_block(parent_idx=0)
        self._program._rollback()
        blocks.append(block)
        return block

    # Variables

    def _declare_parameters(self) -> None:
        for held in self._held:
            self._declare(held.update.param.name, held.slice.name, held)
        for held in self._held:
            kind = VarType.SELECTED_ROWS if held.placed.sparse else VarType.LOD_TENSOR
            for name in [held.grad, *self._pushed(held)]:
                self._new_variable(name, held.slice.shape, self._source.var(held.update.grad).dtype, type=kind)

    def _pushed(self, held: Held) -> list[str]:
        """The variables that pushes of trainers arrive in."""
        return [f"{held.grad}.trainer_{i}" for i in range(self._placement.trainers)] if self._sync else [held.grad]

    def _declare(self, name: str, new: str, held: Held | None) -> None:
        """Declares ``new``, which stands for ``name`` of the source program, or for its rows."""
        if new in self._main.vars:
            return
        variable = self._source.var(name)
        if held is None:
            part = Slice(new, name, 0, (variable.shape or (1,))[0], variable.shape or (1,))
        else:
            part = held.part_of(variable, new)
        shape = variable.shape and part.shape
        self._new_variable(new, shape, variable.dtype, type=variable.type, persistable=variable.persistable)
        if variable.persistable:
            self._slices[new] = part

    def _new_variable(self, name: str, shape: Sequence[int], dtype: Any, **options: Any) -> str:
        self._main.create_var(name=name, shape=shape, dtype=dtype, **options)
        return name

    # Operators

    def _names(self, name: str, held: Held | None) -> list[str]:
        """The names here for a name of the source program; seen from a slice, or from all of them."""
        if name in self._clipping.totals:
            return [total_name(name)]
        owner = self._parts.owner(name)
        if owner is None:
            return [name]
        owning = [held] if held is not None else [each for each in self._held if each.update.param.name == owner]
        return [self._name_for(name, each) for each in owning]

    def _name_for(self, name: str, held: Held) -> str:
        if name == held.update.param.name:
            return held.slice.name
        if name in (held.update.grad, self._gradients.sent[held.update.param.name]):
            return held.grad
        return held.local(name)

    def _copy(self, op: Operator, block: Block, held: Held | None = None, making: bool = False) -> None:
        """Copies an operator for one slice, or once; ``making`` totals, it still writes parts of them."""

        def rename(name: str) -> list[str]:
            names = self._part_names(name, held) if making and name in op.output_arg_names else self._names(name, held)
            for new in names:
                if name in self._source.vars and new != total_name(name):
                    self._declare(name, new, held if held and self._parts.owner(name) else None)
            return names

        copy_operator(op, block, rename)

    def _part_names(self, name: str, held: Held | None) -> list[str]:
        return [name] if held is None else [self._name_for(name, held)]

    def _append(
        self, block: Block, type: str, inputs: Mapping[str, Any], out: str, role: int = OpRole.Optimize, **attrs: Any
    ):
        block.append_op(type=type, inputs=inputs, outputs={"Out": out}, attrs={OP_ROLE: int(role), **attrs})

    # Blocks

    def _average(self, held: Held, block: Block) -> None:
        pushed = self._pushed(held)
        marks = {OP_ROLE_VAR: [held.placed.param, held.placed.grad]}
        self._append(block, "sum", {"X": pushed}, held.grad, **marks)
        self._append(block, "scale", {"X": held.grad}, held.grad, scale=1.0 / len(pushed), **marks)

    def _write_clipping(self, block: Block, clipped: set[int]) -> None:
        for held in self._held:
            if any(id(op) in clipped for op in held.update.ops):
                self._average(held, block)
        for level in self._clipping.levels:
            made: dict[str, None] = {}
            for op in level:
                self._copy_early(op, block)
                made.update({name: None for name in op.output_arg_names if name in self._clipping.totals})
            parts = {name: self._add_up_here(name, block) for name in made}
            for name, part in parts.items():
                self._add_up_servers(name, part, block)

    def _copy_early(self, op: Operator, block: Block) -> None:
        owners = {self._parts.owner(name) for name in op.input_arg_names + op.output_arg_names} - {None}
        if any(op is each for each in self._parts.shared):
            self._copy(op, block, making=True)
            copy = block.ops[-1]
            if op.inputs and not copy.input_arg_names:  # a sum over parameters that are all elsewhere
                del block.ops[-1]
                self._fill_zero(copy.output_arg_names[0], block)
            return
        for held in self._held:
            if held.update.param.name in owners:
                self._copy(op, block, held, making=True)

    def _fill_zero(self, name: str, block: Block) -> str:
        self._new_variable(name, (1,), "float32")
        self._append(block, "fill_constant", {}, name, shape=[1], dtype=int(self._main.var(name).dtype), value=0.0)
        return name

    def _add_up_here(self, name: str, block: Block) -> str:
        """The part of a total that this server has, as one number."""
        owner = self._parts.owner(name)
        if owner is None:
            return name
        parts = [self._name_for(name, held) for held in self._held if held.update.param.name == owner]
        if len(parts) == 1:
            return parts[0]
        here = f"{name}@HERE"
        if not parts:
            return self._fill_zero(here, block)
        self._new_variable(here, (1,), self._source.var(name).dtype)
        self._append(block, "sum", {"X": parts}, here)
        return here

    def _add_up_servers(self, name: str, part: str, block: Block) -> None:
        total = self._new_variable(total_name(name), (1,), self._source.var(name).dtype)
        servers = self._clipping.servers
        if len(servers) == 1:
            self._append(block, "assign", {"X": part}, total)
        else:
            self._append(block, "server_sum", {"X": part}, total, OpRole.RPC, endpoints=list(servers), key=name)

    def _write_constants(self, blocks: list[Block]) -> None:
        """What several updates share and trainers do not compute."""
        shared = [op for op in self._parts.shared if id(op) not in self._on_trainer]
        block = self._new_block(blocks) if shared and self._held else None
        for op in shared if block is not None else ():
            if any(self._parts.owner(name) for name in op.input_arg_names):
                raise op.error("it combines several parameters, whose updates are independent of each other here")
            self._copy(op, block)

    def _write_update(self, held: Held, block: Block, clipped: set[int]) -> None:
        if self._sync and not any(id(op) in clipped for op in held.update.ops):
            self._average(held, block)
        if self._options.dc_asgd:
            self._compensate(held, block)
        for op in held.update.ops:
            if id(op) not in clipped and id(op) not in self._on_trainer:
                self._copy(op, block, held)

    def _compensate(self, held: Held, block: Block) -> None:
        """dc_asgd: g + g * g * (parameter now - parameter as this trainer read it)."""
        if held.placed.sparse:
            raise held.update.optimizer.error(
                f"enable_dc_asgd needs dense gradients, that of {held.placed.param} is sparse",
                hint="use is_sparse=False for its embedding, or no dc_asgd",
            )
        param, grad, shape = held.slice.name, held.grad, held.slice.shape
        dtype = self._main.var(param).dtype
        copies = [f"{param}.trainer_{i}_bak" for i in range(self._placement.trainers)]
        for name in copies:
            self._new_variable(name, shape, dtype, persistable=True)
        self._new_variable(TRAINER_ID, (1,), "int64")
        read, moved, squared, step = (
            self._new_variable(f"{param}.{word}", shape, dtype)
            for word in ("local_bak", "dc_moved", "dc_part", "dc_step")
        )
        self._append(block, "ref_by_trainer_id", {"X": copies, "TrainerId": TRAINER_ID}, read)
        self._append(block, "elementwise_sub", {"X": param, "Y": read}, moved)
        self._append(block, "elementwise_mul", {"X": moved, "Y": grad}, squared)
        self._append(block, "elementwise_mul", {"X": squared, "Y": grad}, step)
        self._append(block, "elementwise_add", {"X": grad, "Y": step}, grad)

    def _append_listen(self, blocks: list[Block], schedule: Block | None, grad_to_block: list[str]) -> None:
        endpoint, endpoints = self._options.endpoint, self._placement.endpoints
        pushed = [name for held in self._held for name in self._pushed(held)]
        self._main.append_op(
            type="listen_and_serv",
            inputs={"X": pushed} if pushed else None,
            attrs={
                OP_ROLE: int(OpRole.RPC),
                "endpoint": endpoint,
                "endpoints": list(endpoints),
                "pserver_id": endpoints.index(endpoint),
                "Fanin": self._placement.trainers,
                "trainers": self._placement.trainers,
                "distributed_mode": int(self._placement.mode),
                "optimize_blocks": blocks,
                "lr_decay_block_id": -1 if schedule is None else schedule.idx,
                "grad_to_block_id": grad_to_block,
                "sparse_grad_to_param": [f"{h.grad}:{h.slice.name}" for h in self._held if h.placed.sparse],
                "dc_asgd": self._options.dc_asgd,
                SLICES: [str(part) for part in self._slices.values()],
            },
        )


_NO_CLIPPING = Clipping((), frozenset(), ())
