"""GEO-SGD: every trainer updates its own parameters, and servers sum the deltas of all trainers, or average them."""

from __future__ import annotations

from typing import Any

from refluid.ir import OP_ROLE, OP_ROLE_VAR, Block, Operator, OpRole, Program, VarType
from refluid.ir.modes import DELTA
from refluid.transpiler.exchange import Exchange
from refluid.transpiler.listening import append_listen, new_block
from refluid.transpiler.lookups import LOOKUPS, look_up_remotely
from refluid.transpiler.parts import Parts
from refluid.transpiler.placement import Placed, Placement
from refluid.transpiler.trainer import leave_merging_to_sends, lookup_attrs


def check_geo(parts: Parts) -> None:
    """Raises unless every optimizer is SGD, of Fluid or optax: the state of others would not fit the summed deltas."""
    for update in parts.updates:
        is_optax = update.optimizer.type.startswith("optax") and not update.states
        if update.optimizer.type != "sgd" and not is_optax:
            raise update.optimizer.error(
                f"GEO training requires SGD; {update.param.name} is updated by {update.optimizer.type}",
                hint="use fluid.optimizer.SGD, or disable geo_sgd_mode",
            )


def geo_trainer_program(program: Program, exchange: Exchange, push_nums: int) -> Program:
    """Appends the exchange to a training program.

    It sends parameters, of which the runtime computes the deltas, and for tables the ids that were looked up. Of tables
    that grow, trainers hold copies of some rows: lookups read them, and the exchange trains them, given gradients and
    the learning rate.
    """
    program = program.clone()
    block = program.global_block()
    averages = _averages(program, exchange.placement)
    growing = {placed.param: placed for placed in exchange.placement.params if placed.grows}
    updates = {op.input("Param")[0]: op for op in block.ops if growing.keys() & set(op.input("Param"))}
    updating = {id(op) for op in updates.values()}
    ops = [op for op in block.ops if id(op) not in updating]
    ids_of = {placed.param: _looked_up(program, placed) for placed in exchange.placement.params}
    block.ops = look_up_remotely(ops, {name: _lookup_attrs(placed, exchange) for name, placed in growing.items()})
    count = len(block.ops)
    for placed in exchange.placement.params:
        if placed.grows:
            _train(block, placed, updates[placed.param], exchange, push_nums)
            continue
        ids = ids_of[placed.param]
        block.append_op(
            type="send",
            inputs={"X": [placed.param, *ids]},
            attrs={
                **exchange.attrs,
                OP_ROLE: int(OpRole.RPC),
                OP_ROLE_VAR: [placed.param, placed.grad],
                "epmap": placed.endpoints,
                "send_varnames": placed.names,
                "sections": placed.sections,
                "geo_push_nums": push_nums,
                "is_sparse": bool(ids),
                "averages": averages,
            },
        )
    leave_merging_to_sends(block.ops[:count], block.ops[count:])
    exchange.pull(block)
    program.changed()
    return program


def _lookup_attrs(placed: Placed, exchange: Exchange) -> dict[str, Any]:
    wire = {} if placed.options.wire == "native" else {"wire": placed.options.wire}
    return {**lookup_attrs(placed, exchange), "trainer_budget": placed.options.trainer_budget, **wire}


def _train(block: Block, placed: Placed, update: Operator, exchange: Exchange, push_nums: int) -> None:
    """Sends a gradient, and the rate that the runtime trains copies of rows with."""
    block.append_op(
        type="send",
        inputs={"X": [*update.input("Grad"), *update.input("LearningRate")]},
        attrs={
            **_lookup_attrs(placed, exchange),
            OP_ROLE: int(OpRole.RPC),
            OP_ROLE_VAR: [placed.param, placed.grad],
            "table_name": placed.param,
            "send_varnames": placed.names,
            "sections": placed.sections,
            "geo_push_nums": push_nums,
            "is_sparse": True,
        },
    )


def _averages(program: Program, placement: Placement) -> bool:
    """Whether servers average what trainers have learned: in programs without tables that are exchanged by rows."""
    return not any(_looked_up(program, placed) for placed in placement.params)


def _looked_up(program: Program, placed: Placed) -> list[str]:
    """The ids of all rows that a step changes; none if it may change every row, as weight decay does."""
    block = program.global_block()
    (update,) = [op for op in block.ops if op.input("Param") == [placed.param]]
    if block.var(update.input("Grad")[0]).type != VarType.SELECTED_ROWS:
        return []
    if any(placed.param in op.input_arg_names for inner in program.blocks[1:] for op in inner.ops):
        return []
    lookups = [op for op in block.ops if op.type in LOOKUPS and op.input("W") == [placed.param]]
    return list(dict.fromkeys(name for op in lookups for name in op.input("Ids")))


def geo_server_program(program: Program, placement: Placement, endpoint: str) -> Program:
    """Turns a training program into that of one server, which adds deltas to its slices."""
    source, result = program.global_block(), Program()
    main = result.global_block()
    blocks, slices, rows_of = {}, [], {}
    for placed in placement.params:
        as_rows = bool(_looked_up(program, placed))
        for part in (placed.slices[index] for index in placed.on(endpoint)):
            dtype, change = source.var(placed.param).dtype, part.name + DELTA
            kind = VarType.SELECTED_ROWS if as_rows else VarType.LOD_TENSOR
            main.create_var(name=part.name, shape=part.shape, dtype=dtype, persistable=True)
            main.create_var(name=change, shape=part.shape, dtype=dtype, type=kind)
            blocks[change] = block = new_block(result)
            attrs = {OP_ROLE: int(OpRole.Optimize)}
            block.append_op(type="sum", inputs={"X": [part.name, change]}, outputs={"Out": part.name}, attrs=attrs)
            slices.append(part)
            if as_rows:
                rows_of[change] = part.name
    all_blocks = list(blocks.values())
    append_listen(
        result, placement, endpoint, pushed=[*blocks], blocks=all_blocks, updates=blocks, rows_of=rows_of, slices=slices
    )
    main.ops[-1].attrs["averages"] = _averages(program, placement)
    return result
