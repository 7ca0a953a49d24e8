"""Server programs: a listen_and_serv operator over blocks that update the slices of one server."""

from __future__ import annotations

from collections.abc import Sequence

from refluid.ir import OP_ROLE_VAR, Block, Operator, OpRole, Program, VarType
from refluid.ir.modes import Mode
from refluid.transpiler.clipping import NO_CLIPPING, plan_clipping, spell_out_norms, total_name
from refluid.transpiler.dc_asgd import compensate
from refluid.transpiler.gradients import gradients_on_trainer
from refluid.transpiler.listening import append_listen, new_block
from refluid.transpiler.parts import take_apart
from refluid.transpiler.placement import Placement
from refluid.transpiler.slice_copies import Held, SliceCopier


def server_program(program: Program, placement: Placement, endpoint: str, dc_asgd: bool = False) -> Program:
    """Turns a training program into that of the server at ``endpoint``.

    Block 0 holds listen_and_serv and all variables. Then come, if the program needs them, a block for the learning
    rates and one for the norms of clipping, and one block for every slice of a parameter.
    """
    if placement.mode is Mode.SYNC:
        program = spell_out_norms(program, [placed.param for placed in placement.params if len(placed.slices) > 1])
    return _Writer(program, placement, endpoint, dc_asgd).write()


class _Writer:
    """Writes one server's program."""

    def __init__(self, source: Program, placement: Placement, endpoint: str, dc_asgd: bool):
        self._placement, self._endpoint, self._dc_asgd = placement, endpoint, dc_asgd
        self._sync = placement.mode is Mode.SYNC
        self._parts = take_apart(source)
        gradients = gradients_on_trainer(self._parts, placement.mode)
        self._on_trainer = {id(op) for op in gradients.ops}
        self._clipping = plan_clipping(self._parts, placement) if self._sync else NO_CLIPPING
        self._early = {id(op) for level in self._clipping.levels for op in level}
        self._held: list[Held] = []
        for update in self._parts.updates:
            placed = placement.of(update.param.name)
            here = placed.on(endpoint)
            sent = gradients.sent[update.param.name]
            self._held += [Held(placed, update, index, len(here) == 1, sent) for index in here]
        totals = {name: total_name(name) for name in self._clipping.totals}
        self._copier = SliceCopier(source, self._parts, self._held, totals)
        self._blocks: list[Block] = []

    def write(self) -> Program:
        self._declare_parameters()
        # A server without parameters gets no pushes: its learning rate would never advance, and still be saved.
        schedule = self._write_alone(self._parts.schedule) if self._held else None
        if self._early and self._endpoint in self._clipping.servers:
            self._write_clipping(self._new_block())
        if not self._sync and self._held:
            self._write_alone(self._shared_by_updates())
        updates = {held.grad: self._write_update(held, self._new_block()) for held in self._held}
        append_listen(
            self._copier.program,
            self._placement,
            self._endpoint,
            pushed=[name for held in self._held for name in self._pushed(held)],
            blocks=self._blocks,
            updates=updates,
            rows_of={held.grad: held.slice.name for held in self._held if held.placed.sparse},
            slices=self._copier.slices.values(),
            schedule=schedule,
            dc_asgd=self._dc_asgd,
        )
        return self._copier.program

    def _new_block(self) -> Block:
        self._blocks.append(new_block(self._copier.program))
        return self._blocks[-1]

    def _declare_parameters(self) -> None:
        for held in self._held:
            self._copier.declare_copy(held.param, held.slice.name, held)
        for held in self._held:
            kind = VarType.SELECTED_ROWS if held.placed.sparse else VarType.LOD_TENSOR
            for name in [held.grad, *self._pushed(held)]:
                dtype = self._copier.source_dtype(held.update.grad)
                self._copier.declare(name, held.slice.shape, dtype, type=kind)

    def _pushed(self, held: Held) -> list[str]:
        """The variables that receive pushes."""
        return [f"{held.grad}.trainer_{i}" for i in range(self._placement.trainers)] if self._sync else [held.grad]

    def _write_alone(self, ops: Sequence[Operator]) -> Block | None:
        """Writes a block of operators that belong to no parameter, if there are any."""
        if not ops:
            return None
        block = self._new_block()
        for op in ops:
            self._copier.copy(op, block)
        return block

    def _shared_by_updates(self) -> list[Operator]:
        """What several updates need and trainers do not compute; without rounds, updates can share constants only."""
        shared = [op for op in self._parts.shared if id(op) not in self._on_trainer]
        for op in shared:
            if any(self._parts.owner(name) for name in op.input_arg_names):
                raise op.error("it combines several parameters, but in this mode their updates are independent")
        return shared

    # Updates

    def _write_update(self, held: Held, block: Block) -> Block:
        if self._sync and not self._is_clipped(held):
            self._average(held, block)
        if self._dc_asgd:
            compensate(self._copier, held, block, self._placement.trainers)
        for op in held.update.ops:
            if id(op) not in self._early and id(op) not in self._on_trainer:
                self._copier.copy(op, block, held)
        return block

    def _average(self, held: Held, block: Block) -> None:
        pushed = self._pushed(held)
        marks = {OP_ROLE_VAR: [held.param, held.placed.grad]}
        self._copier.append(block, "sum", {"X": pushed}, held.grad, marks)
        self._copier.append(block, "scale", {"X": held.grad}, held.grad, {"scale": 1.0 / len(pushed), **marks})

    # Clipping

    def _is_clipped(self, held: Held) -> bool:
        return any(id(op) in self._early for op in held.update.ops)

    def _write_clipping(self, block: Block) -> None:
        """Writes averages, their partial sums on this server, the sums over all servers, and what depends on these."""
        for held in filter(self._is_clipped, self._held):
            self._average(held, block)
        for level in self._clipping.levels:
            for op in level:
                self._copy_early(op, block)
            made = dict.fromkeys(name for op in level for name in op.output_arg_names if name in self._clipping.totals)
            parts = {name: self._add_up_here(name, block) for name in made}
            for name, part in parts.items():
                self._add_up_servers(name, part, block)

    def _copy_early(self, op: Operator, block: Block) -> None:
        owners = {self._parts.owner(name) for name in op.input_arg_names + op.output_arg_names} - {None}
        if len(owners) == 1:
            for held in self._held:
                if held.param in owners:
                    self._copier.copy(op, block, held)
            return
        copy = self._copier.copy(op, block)
        if op.input_arg_names and not copy.input_arg_names:  # a sum over parameters of other servers
            block.ops.remove(copy)
            self._fill_zero(copy.output_arg_names[0], op.output_arg_names[0], block)

    def _fill_zero(self, name: str, like: str, block: Block) -> str:
        dtype = self._copier.source_dtype(like)
        self._copier.declare(name, (1,), dtype)
        return self._copier.append(block, "fill_constant", {}, name, {"shape": [1], "dtype": int(dtype), "value": 0.0})

    def _add_up_here(self, name: str, block: Block) -> str:
        """This server's part of a total, as a scalar."""
        if self._parts.owner(name) is None:
            return name
        parts = [held.local(name) for held in self._copier.owning(name)]
        if len(parts) == 1:
            return parts[0]
        here = f"{name}@HERE"
        if not parts:
            return self._fill_zero(here, name, block)
        self._copier.declare(here, (1,), self._copier.source_dtype(name))
        return self._copier.append(block, "sum", {"X": parts}, here)

    def _add_up_servers(self, name: str, part: str, block: Block) -> None:
        total = self._copier.declare(total_name(name), (1,), self._copier.source_dtype(name))
        servers = list(self._clipping.servers)
        if len(servers) == 1:
            self._copier.append(block, "assign", {"X": part}, total)
        else:
            attrs = {"endpoints": servers, "key": name}
            self._copier.append(block, "server_sum", {"X": part}, total, attrs, OpRole.RPC)
