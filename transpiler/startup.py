"""Startup programs of trainers and servers: which process initialises what, and how all get the same values."""

from __future__ import annotations

from collections.abc import Sequence

from refluid.ir import OP_ROLE, Block, Operator, OpRole, Program
from refluid.ir.slices import ROW_INITIALIZERS, SLICES, Slice, slices_of
from refluid.transpiler.copying import copy_operator
from refluid.transpiler.dataflow import Flow
from refluid.transpiler.exchange import Exchange


def trainer_startup(program: Program, exchange: Exchange, states: set[str]) -> Program:
    """Turns a startup program into that of one trainer.

    It initialises the same variables except ``states``, which live on servers. Then, in one exchange, trainer 0 offers
    its parameters and other variables, and all trainers receive what the servers have accepted.
    """
    program = program.clone()
    block = program.global_block()
    flow = Flow(block.ops)
    params = exchange.placement.params
    missing = sorted(placed.param for placed in params if not flow.writers(placed.param))
    if missing:
        raise ValueError(
            f"the startup program does not initialise {', '.join(missing)}: "
            "pass the one that belongs to the program, transpile(..., startup_program=...)"
        )
    _check_states(states, {placed.param for placed in params}, flow)
    tables = [placed.param for placed in params if placed.remote]
    first = exchange.trainer_id == 0
    growing = {placed.param for placed in params if placed.grows}
    _drop_initialisers(block, flow, states | (growing if first else set(tables)))
    if first:
        exchange.offer(block)
    exchange.begin(block)
    for name in tables:
        attrs = {OP_ROLE: int(OpRole.RPC), "shape": list(block.var(name).shape), "initial": True}
        block.append_op(type="fake_init", outputs={"Out": name}, attrs={**attrs, **exchange.attrs})
    return program


def _check_states(states: set[str], params: set[str], flow: Flow) -> None:
    """Raises if a state begins with the value of a parameter: servers begin before they get those of trainer 0."""
    for name in sorted(states):
        read = sorted(params & {other for op in flow.behind({name}) for other in flow.reads(op)})
        if read:
            raise ValueError(
                f"the optimizer's state {name} begins with the value of {read[0]}, which servers do not know when they "
                "begin; train without servers, or choose another optimizer"
            )


def _drop_initialisers(block: Block, flow: Flow, names: set[str]) -> None:
    kept = [op for op in block.ops if not flow.writes(op) <= names]
    needed = {id(op) for op in (*kept, *flow.behind({name for op in kept for name in flow.reads(op)}))}
    block.ops = [op for op in block.ops if id(op) in needed]


def server_startup(program: Program, server: Program) -> Program:
    """Turns a startup program into that of the server that runs ``server``: it initialises the slices held there.

    Every initialiser lists its slice in the attribute ``slices``.
    """
    source, result = program.global_block(), Program()
    flow = Flow(source.ops)
    result.random_seed = program.random_seed
    block, serving = result.global_block(), server.global_block()
    held: dict[str, list[Slice]] = {}
    for part in slices_of(server):
        held.setdefault(part.whole, []).append(part)
    for name in dict.fromkeys(name for op in source.ops for name in op.output_arg_names if name in held):
        writers = flow.writers(name)
        if held[name][0].grows:
            _begin_rows(name, held[name], writers, block, serving)
        elif len(writers) == 1 and _fills_any_shape(writers[0]):
            for part in held[name]:
                block._clone_variable(serving.var(part.name))
                copy = copy_operator(writers[0], block, lambda _, part=part: [part.name])
                copy.attrs.update({"shape": list(part.shape), SLICES: [str(part)]})
        else:
            _cut(name, held[name], flow, block, serving)
    for op in (op for each in server.blocks for op in each.ops if op.type == "ref_by_trainer_id"):
        for name in op.input("X"):  # dc_asgd: the parameter as a trainer last read it
            block._clone_variable(serving.var(name))
            block.append_op(type="assign", inputs={"X": name.rpartition(".trainer_")[0]}, outputs={"Out": name})
    return result


def _begin_rows(name: str, slices: Sequence[Slice], writers: Sequence[Operator], block: Block, serving: Block) -> None:
    """Has rows of a table that grows begin as the initialiser would have filled the whole table."""
    if len(writers) != 1 or writers[0].type not in ROW_INITIALIZERS or writers[0].attrs.get("diag_num"):
        made = writers[0].type if writers else "nothing"
        raise ValueError(
            f"{name} is initialised by {made}; rows of a table with is_distributed=True begin one by one, by "
            "Constant, Uniform, Normal, TruncatedNormal or Xavier"
        )
    op = writers[0]
    first, second = ROW_INITIALIZERS[op.type]
    attrs = {
        "initializer": op.type,
        "first": float(op.attr(first)),
        "second": float(op.attr(second)) if second else 0.0,
        "dtype": int(op.attr("dtype")),
        "seed": int(op.attrs.get("seed", 0)),
        "drawn_for": name,
    }
    for part in slices:
        block._clone_variable(serving.var(part.name))
        block.append_op(type="begin_rows", outputs={"Out": part.name}, attrs={**attrs, SLICES: [str(part)]})


def _cut(name: str, slices: Sequence[Slice], flow: Flow, block: Block, serving: Block) -> None:
    """Initialises the whole variable as trainers do, and cuts the slices out of it."""
    sliced = not all(part.is_whole for part in slices)
    renamed = {name: f"{name}.whole"} if sliced else {}  # a slice may have the name of the whole
    for op in flow.behind({name}):
        for each in flow.reads(op) | flow.writes(op):
            source = op.block.var(each)
            is_held = each not in renamed and each in serving.vars and serving.var(each).persistable
            copy = block.create_var(name=renamed.get(each, each), shape=source.shape, dtype=source.dtype)
            copy.persistable = is_held
        copy_operator(op, block, lambda name: [renamed.get(name, name)])
    for part in slices:
        block._clone_variable(serving.var(part.name)).persistable = True
        marks = {SLICES: [str(part)]}
        if part.is_whole:
            block.ops[-1].attrs.update(marks)
            continue
        attrs = {"axes": [0], "starts": [part.start], "ends": [part.end], **marks}
        block.append_op(type="slice", inputs={"Input": renamed[name]}, outputs={"Out": part.name}, attrs=attrs)


def _fills_any_shape(op: Operator) -> bool:
    return op.definition.slices == "fill" and not op.input_arg_names and not op.attrs.get("diag_num")
