"""Tables that live on servers only, and the lookups that request their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from refluid.ir import OP_ROLE, Operator, OpRole, Program, VarType
from refluid.ir.modes import Mode
from refluid.ir.slices import NO_ROW
from refluid.ir.table_options import TABLE_OPTIONS, TableOptions
from refluid.transpiler.dataflow import Flow
from refluid.transpiler.parts import Parts

LOOKUPS = {"lookup_table": 1, "lookup_table_v2": 2}
_GRADIENTS = frozenset(type + "_grad" for type in LOOKUPS)
_MOST_ROWS = 2**31


def remote_tables(program: Program, parts: Parts) -> set[str]:
    """The trained tables that trainers only look up rows in, so that they need not hold them.

    Trainers hold a table that is also used in another way (as the weights of a projection, inside a loop).
    """
    lookups = [op for op in program.global_block().ops if op.type in LOOKUPS and op.attrs.get("is_sparse")]
    trained = {update.param.name for update in parts.updates}
    tables = {name for op in lookups for name in op.input("W") if name in trained}
    found = {id(op) for op in lookups}
    updating = {id(op) for op in parts.updating}
    for block in program.blocks:
        for op in block.ops:
            if id(op) not in found and id(op) not in updating:
                tables -= set(op.input_arg_names) - (set(op.input("W")) if op.type in _GRADIENTS else set())
    for name in sorted(tables - growing_tables(program, tables)):
        rows = program.global_block().var(name).shape[0]
        if rows > _MOST_ROWS:
            raise ValueError(
                f"table {name} has {rows} rows, and a table of fixed height {_MOST_ROWS} at most; "
                "with is_distributed=True its rows may have any ids"
            )
    return tables


def growing_tables(program: Program, remote: Set[str]) -> set[str]:
    """The remote tables whose rows may have any ids and begin when they are used first: is_distributed ones."""
    lookups = [op for op in program.global_block().ops if op.type in LOOKUPS]
    return {name for name in remote if all(op.attrs.get("is_distributed") for op in lookups if op.input("W") == [name])}


def trained_by_rows(program: Program, parts: Parts, tables: Set[str]) -> set[str]:
    """The tables of which GEO trainers train single rows: by SGD, which leaves the other rows as they are."""
    variables = program.global_block().vars
    return {
        update.param.name
        for update in parts.updates
        if update.param.name in tables
        and update.optimizer.type == "sgd"
        and variables[update.optimizer.input("Grad")[0]].type == VarType.SELECTED_ROWS
        and not any(update.param.name in op.input_arg_names for op in update.ops if op is not update.optimizer)
    }


def options_of(program: Program, growing: Set[str], mode: Mode) -> dict[str, TableOptions]:
    """The options of tables, by name.

    Raises:
      ValueError: two lookups of a table give different ones, the table does not grow, or the mode has no use for one.
    """
    found: dict[str, str] = {}
    for op in program.global_block().ops:
        text = op.attrs.get(TABLE_OPTIONS, "") if op.type in LOOKUPS else ""
        if not text:
            continue
        (table,) = op.input("W")
        if table not in growing:
            raise ValueError(
                f"table {table} has table_options, but its rows do not live on servers only: trainers hold it where "
                "other operators use it than lookups with is_sparse=True and is_distributed=True, and in GEO training "
                "with weight decay, which changes all rows in every step"
            )
        if found.setdefault(table, text) != text:
            raise ValueError(f"two lookups give table {table} different options: {found[table]} and {text}")
    options = {table: TableOptions.parse(text) for table, text in found.items()}
    for table, chosen in options.items():
        _check_mode(table, chosen, mode)
    return options


def _check_mode(table: str, options: TableOptions, mode: Mode) -> None:
    if mode is Mode.GEO and (options.min_count > 1 or options.probability < 1.0):
        raise ValueError(
            f"table {table} has table_options min_count or probability, but GEO trainers train rows by themselves "
            "before servers hear of their ids: leave them out, or use another mode"
        )
    if mode is not Mode.GEO and options.trainer_budget != TableOptions().trainer_budget:
        raise ValueError(
            f"table {table} has table_options trainer_budget, but only GEO trainers hold rows; "
            "budget is that of servers"
        )


def look_up_remotely(ops: Sequence[Operator], tables: Mapping[str, Mapping[str, Any]]) -> list[Operator]:
    """Moves all lookups in ``tables`` (their attributes by name) together, as early as possible.

    Lookups whose ids need no other lookup come first of all, after what makes their ids; then those that wait for the
    rows of the first, and so on. This takes the fewest exchanges.
    """
    remaining, result = list(ops), []
    while any(_is_remote(op, tables) for op in remaining):
        flow = Flow(remaining)
        ready = [op for op in remaining if _is_remote(op, tables) and _can_come_first(op, flow, tables)]
        if not ready:
            break
        needed = {id(each) for op in ready for each in flow.before(op)}
        result += [op for op in remaining if id(op) in needed] + _merged(ready, tables)
        gone = needed | {id(op) for op in ready}
        remaining = [op for op in remaining if id(op) not in gone]
    for op in remaining:
        result += _merged([op], tables) if _is_remote(op, tables) else [op]
    for op in result:
        if op.type in _GRADIENTS and set(op.input("W")) & set(tables):
            table = op.input("W")[0]
            op.set_attr("height", NO_ROW if tables[table].get("grows") else op.block.var(table).shape[0])
            del op.inputs["W"]
    return result


def _is_remote(op: Operator, tables: Mapping[str, Any]) -> bool:
    return op.type in LOOKUPS and op.input("W")[0] in tables


def _can_come_first(op: Operator, flow: Flow, tables: Mapping[str, Any]) -> bool:
    """Whether a lookup, and what computes its ids, may move before all remaining operators."""
    needed = flow.before(op)
    if any(_is_remote(each, tables) for each in needed):
        return False
    written = {name: flow.place(each) for each in needed for name in flow.writes(each)}  # its last write
    moving = {id(each) for each in needed}
    overtaken = [each for each in flow.ops[: max(written.values(), default=0)] if id(each) not in moving]
    return not any(
        flow.place(each) < written.get(name, 0) for each in overtaken for name in flow.reads(each) | flow.writes(each)
    )


def _merged(lookups: Sequence[Operator], tables: Mapping[str, Mapping[str, Any]]) -> list[Operator]:
    """One operator for all lookups of a table with the same padding_idx."""
    groups: dict[Any, list[Operator]] = {}
    for op in lookups:
        groups.setdefault((op.input("W")[0], op.attrs.get("padding_idx", -1), LOOKUPS[op.type]), []).append(op)
    merged = []
    for (table, padding_idx, version), group in groups.items():
        variable = group[0].block.var(table)
        attrs = {
            **tables[table],
            OP_ROLE: int(OpRole.RPC),
            "table_name": table,
            "padding_idx": padding_idx,
            "dtype": int(variable.dtype),
            "emb_dim": variable.shape[-1],
            "lookup_version": version,
        }
        ids = {"Ids": [name for op in group for name in op.input("Ids")]}
        found = {"Outputs": [name for op in group for name in op.output("Out")]}
        block, written_at = group[0].block, group[0].written_at
        merged.append(Operator(block, "distributed_lookup_table", ids, found, attrs, written_at))
    return merged
