"""GEO-SGD: every trainer trains by itself, and servers add up how far the trainers' parameters have moved."""

from __future__ import annotations

from dataclasses import dataclass

from refluid.ir import OP_ROLE, OP_ROLE_VAR, OpRole, Program, VarType
from refluid.ir.slices import SLICES
from refluid.transpiler.exchange import Exchange
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
            ids = _looked_up(program, placed) if placed.sparse else []
            block.append_op(
                type="send",
                inputs={"X": [placed.param, *ids]},
                attrs={
                    **self.exchange.attrs,
                    OP_ROLE: int(OpRole.RPC),
                    OP_ROLE_VAR: [placed.param, placed.grad],
                    "epmap": list(placed.endpoints),
                    "send_varnames": placed.names,
                    "sections": placed.sections,
                    "geo_push_nums": self.push_nums,
                    "is_sparse": bool(ids),
                },
            )
        self.exchange.pull(block)
        return program


def _looked_up(program: Program, placed: Placed) -> list[str]:
    """The ids that say which rows of a table a step has changed; none where that is not known."""
    readers = [op for op in program.global_block().ops if op.type in LOOKUPS and op.input("W") == [placed.param]]
    inner = [op for block in program.blocks[1:] for op in block.ops if placed.param in op.input_arg_names]
    return [] if inner else list(dict.fromkeys(name for op in readers for name in op.input("Ids")))


@dataclass(frozen=True)
class GeoServerProgram:
    """Turns a training program into that of a server, which adds deltas to its slices."""

    placement: Placement
    endpoint: str

    def apply(self, program: Program) -> Program:
        source, result = program.global_block(), Program()
        main = result.global_block()
        held = [(placed, index) for placed in self.placement.params for index in placed.on(self.endpoint)]
        blocks, deltas, slices = [], [], []
        for placed, index in held:
            piece = placed.slices[index]
            dtype = source.var(placed.param).dtype
            kind = VarType.SELECTED_ROWS if placed.sparse and _looked_up(program, placed) else VarType.LOD_TENSOR
            main.create_var(name=piece.name, shape=piece.shape, dtype=dtype, persistable=True)
            main.create_var(name=f"{piece.name}.delta", shape=piece.shape, dtype=dtype, type=kind)
            block = result._create_block(parent_idx=0)
            result._rollback()
            block.append_op(
                type="sum",
                inputs={"X": [piece.name, f"{piece.name}.delta"]},
                outputs={"Out": piece.name},
                attrs={OP_ROLE: int(OpRole.Optimize)},
            )
            blocks.append(block)
            deltas.append((f"{piece.name}.delta", piece.name, kind))
            slices.append(str(piece))
        main.append_op(
            type="listen_and_serv",
            inputs={"X": [name for name, _, _ in deltas]} if deltas else None,
            attrs={
                OP_ROLE: int(OpRole.RPC),
                "endpoint": self.endpoint,
                "endpoints": list(self.placement.endpoints),
                "pserver_id": self.placement.endpoints.index(self.endpoint),
                "Fanin": self.placement.trainers,
                "trainers": self.placement.trainers,
                "distributed_mode": int(self.placement.mode),
                "optimize_blocks": blocks,
                "lr_decay_block_id": -1,
                "grad_to_block_id": [f"{d[0]}:{b.idx}" for d, b in zip(deltas, blocks, strict=True)],
                "sparse_grad_to_param": [
                    f"{delta}:{name}" for delta, name, kind in deltas if kind != VarType.LOD_TENSOR
                ],
                "dc_asgd": False,
                SLICES: slices,
            },
        )
        return result
