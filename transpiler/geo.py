"""GEO-SGD: every trainer trains by itself, and servers add up how far the trainers' parameters have moved."""

from __future__ import annotations

from dataclasses import dataclass

from refluid.ir import OP_ROLE, OP_ROLE_VAR, OpRole, Program, VarType
from refluid.ir.modes import DELTA
from refluid.transpiler.exchange import Exchange
from refluid.transpiler.listening import append_listen, new_block
from refluid.transpiler.lookups import LOOKUPS
from refluid.transpiler.parts import Parts, take_apart
from refluid.transpiler.placement import Placed, Placement


def check_geo(parts: Parts) -> None:
    """GEO-SGD adds up steps of SGD; other optimizers keep states that would not follow."""
    for update in parts.updates:
        if update.optimizer.type != "sgd":
            raise update.optimizer.error(
                f"GEO training is for SGD, {update.param.name} is updated by {update.optimizer.type}",
                hint="use fluid.optimizer.SGD, or another mode than geo_sgd_mode",
            )


@dataclass(frozen=True)
class GeoTrainerProgram:
    """Appends the exchange to a training program that stays as it is.

    Parameters are sent, of which the runtime finds the changes; those of tables with the ids that were looked up.
    """

    exchange: Exchange
    push_nums: int

    def apply(self, program: Program) -> Program:
        check_geo(take_apart(program))
        program = program.clone()
        block = program.global_block()
        for placed in self.exchange.placement.params:
            ids = _looked_up(program, placed)
            block.append_op(
                type="send",
                inputs={"X": [placed.param, *ids]},
                attrs={
                    **self.exchange.attrs,
                    OP_ROLE: int(OpRole.RPC),
                    OP_ROLE_VAR: [placed.param, placed.grad],
                    "epmap": placed.endpoints,
                    "send_varnames": placed.names,
                    "sections": placed.sections,
                    "geo_push_nums": self.push_nums,
                    "is_sparse": bool(ids),
                },
            )
        self.exchange.pull(block)
        return program


def _looked_up(program: Program, placed: Placed) -> list[str]:
    """The ids of all rows that a step changes; none where it may change any, as weight decay does."""
    block = program.global_block()
    (update,) = [op for op in block.ops if op.input("Param") == [placed.param]]
    if block.var(update.input("Grad")[0]).type != VarType.SELECTED_ROWS:
        return []
    if any(placed.param in op.input_arg_names for inner in program.blocks[1:] for op in inner.ops):
        return []
    lookups = [op for op in block.ops if op.type in LOOKUPS and op.input("W") == [placed.param]]
    return list(dict.fromkeys(name for op in lookups for name in op.input("Ids")))


@dataclass(frozen=True)
class GeoServerProgram:
    """Turns a training program into that of a server, which adds deltas to its slices."""

    placement: Placement
    endpoint: str

    def apply(self, program: Program) -> Program:
        source, result = program.global_block(), Program()
        main = result.global_block()
        blocks, slices, rows_of = {}, [], {}
        for placed in self.placement.params:
            as_rows = bool(_looked_up(program, placed))
            for piece in (placed.slices[index] for index in placed.on(self.endpoint)):
                dtype, change = source.var(placed.param).dtype, piece.name + DELTA
                kind = VarType.SELECTED_ROWS if as_rows else VarType.LOD_TENSOR
                main.create_var(name=piece.name, shape=piece.shape, dtype=dtype, persistable=True)
                main.create_var(name=change, shape=piece.shape, dtype=dtype, type=kind)
                blocks[change] = block = new_block(result)
                attrs = {OP_ROLE: int(OpRole.Optimize)}
                block.append_op(
                    type="sum", inputs={"X": [piece.name, change]}, outputs={"Out": piece.name}, attrs=attrs
                )
                slices.append(piece)
                rows_of.update({change: piece.name} if as_rows else {})
        append_listen(
            result,
            self.placement,
            self.endpoint,
            pushed=list(blocks),
            blocks=list(blocks.values()),
            updates=blocks,
            rows_of=rows_of,
            slices=slices,
        )
        return result
