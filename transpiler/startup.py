"""Startup programs of trainers and servers: which process initialises what, and how all get the same values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refluid.ir import OP_ROLE, Block, Operator, OpRole, Program
from refluid.ir.slices import SLICES, Slice, slices_of
from refluid.transpiler.copying import copy_operator
from refluid.transpiler.dataflow import Flow, writes
from refluid.transpiler.exchange import Exchange


@dataclass(frozen=True)
class TrainerStartup:
    """Turns a startup program into that of one trainer.

    It initialises the same variables except ``states``, which live on servers. Then, in one exchange, trainer 0 offers
    its parameters and other variables, and all trainers receive what the servers have accepted.
    """

    exchange: Exchange
    states: frozenset[str]

    def apply(self, program: Program) -> Program:
        program = program.clone()
        block = program.global_block()
        params = self.exchange.placement.params
        _check_initialised(block, [placed.param for placed in params])
        tables = [placed.param for placed in params if placed.remote]
        first = self.exchange.trainer_id == 0
        _drop_initialisers(block, self.states if first else self.states.union(tables))
        if first:
            self.exchange.offer(block)
        self.exchange.begin(block)
        for name in tables:
            attrs = {OP_ROLE: int(OpRole.RPC), "shape": list(block.var(name).shape), "initial": True}
            block.append_op(type="fake_init", outputs={"Out": name}, attrs={**attrs, **self.exchange.attrs})
        return program


def _check_initialised(block: Block, params: Sequence[str]) -> None:
    missing = sorted(set(params) - {name for op in block.ops for name in writes(op)})
    if missing:
        raise ValueError(
            f"the startup program does not initialise {', '.join(missing)}: "
            "pass the one that belongs to the program, transpile(..., startup_program=...)"
        )


def _drop_initialisers(block: Block, names: frozenset[str]) -> None:
    flow = Flow(block.ops)
    kept = [op for op in block.ops if not flow.writes(op) <= names]
    needed = {id(op) for op in (*kept, *flow.behind({name for op in kept for name in flow.reads(op)}))}
    block.ops = [op for op in block.ops if id(op) in needed]


@dataclass(frozen=True)
class ServerStartup:
    """Turns a startup program into that of the server that runs ``server``: it initialises the slices held there.

    Every initialiser lists its slice in the attribute ``slices``.
    """

    server: Program

    def apply(self, program: Program) -> Program:
        source, result = program.global_block(), Program()
        flow = Flow(source.ops)
        result.random_seed = program.random_seed
        block = result.global_block()
        held: dict[str, list[Slice]] = {}
        for part in slices_of(self.server):
            held.setdefault(part.whole, []).append(part)
        for name in dict.fromkeys(name for op in source.ops for name in op.output_arg_names if name in held):
            writers = flow.writers(name)
            if len(writers) == 1 and _fills_any_shape(writers[0]):
                for part in held[name]:
                    self._fill(writers[0], part, block)
            else:
                self._cut(name, held[name], flow, block)
        self._copy_parameters(block)
        return result

    def _fill(self, op: Operator, part: Slice, block: Block) -> None:
        block._clone_variable(self.server.global_block().var(part.name))
        copy = copy_operator(op, block, lambda name: [part.name])
        copy.attrs["shape"] = list(part.shape)
        copy.attrs[SLICES] = [str(part)]

    def _cut(self, name: str, slices: Sequence[Slice], flow: Flow, block: Block) -> None:
        """Initialises the whole variable as trainers do, and cuts the slices out of it."""
        for op in flow.behind({name}):
            for each in flow.reads(op) | flow.writes(op):
                block._clone_variable(op.block.var(each), force_persistable=False).persistable = False
            copy_operator(op, block, lambda name: [name])
        for part in slices:
            variable = block._clone_variable(self.server.global_block().var(part.name))
            variable.persistable = True
            marks = {SLICES: [str(part)]}
            if part.name == part.whole:
                block.ops[-1].attrs.update(marks)
                continue
            attrs = {"axes": [0], "starts": [part.start], "ends": [part.end], **marks}
            block.append_op(type="slice", inputs={"Input": name}, outputs={"Out": part.name}, attrs=attrs)

    def _copy_parameters(self, block: Block) -> None:
        """dc_asgd: initialises the copies of parameters as each trainer last read them."""
        for op in (op for each in self.server.blocks for op in each.ops if op.type == "ref_by_trainer_id"):
            for name in op.input("X"):
                block._clone_variable(self.server.global_block().var(name))
                param = name.rpartition(".trainer_")[0]
                block.append_op(type="assign", inputs={"X": param}, outputs={"Out": name})


def _fills_any_shape(op: Operator) -> bool:
    return op.definition.slices == "fill" and not op.input_arg_names and not op.attrs.get("diag_num")
