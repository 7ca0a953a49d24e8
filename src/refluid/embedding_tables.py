"""Options of embedding tables that live on servers, as scripts set them."""

from __future__ import annotations

from dataclasses import replace

from refluid.ir import Program, default_main_program
from refluid.ir.table_options import TABLE_OPTIONS, TableOptions
from refluid.ir.variable import Variable, name_of
from refluid.ir.vartype import VarType

_UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip


def table_options(
    table: Variable | str,
    *,
    program: Program | None = None,
    min_count: int | None = None,
    probability: float | None = None,
    precision: str | None = None,
    wire: str | None = None,
    budget: int | str | None = None,
    trainer_budget: int | str | None = None,
    on_full: str | None = None,
    max_age: int | None = None,
    min_norm: float | None = None,
    keep_count: float | None = None,
    count_decay: float | None = None,
    shrink_every: int | None = None,
) -> None:
    """Sets options of a table that grows: one of ``layers.embedding(..., is_sparse=True, is_distributed=True)``.

    Call it after the layers that use the table, and before the program is transpiled. Options that are not given stay
    as they are. They are attributes of the program, so they are saved with it and reach the servers.

    >>> ids = fluid.layers.data("ids", [1], dtype="int64")
    >>> fluid.layers.embedding(ids, [10**9, 16], is_sparse=True, is_distributed=True, param_attr="emb")
    >>> refluid.table_options("emb", min_count=3, budget="8GB", on_full="evict", precision="bfloat16")

    Args:
      table: the table's parameter, or its name.
      program: the program that uses it; by default the default main program.
      min_count: an id gets a row with the n-th update that it is in; until then it is looked up as zeros, and its
        gradients have no effect. Servers count ids without rows in a few MB, approximately: an id may get its row
        earlier, in a table with very many different ids.
      probability: the share of ids that may have rows; which ones follows from the program's random seed. The others
        are always looked up as zeros.
      precision: what weights are stored with: "native", or "bfloat16" or "float16" for half the memory. States of the
        optimizer keep their precision.
      wire: what rows and gradients are sent with: "native", "bfloat16" or "float16".
      budget: bytes that the table may take on each server, such as ``8 * 10**9`` or "8GB"; 0 for any.
      trainer_budget: GEO training: bytes that copies of the table's rows may take on each trainer, by default "1GiB"; 0
        for any. Those that were used longest ago are given up.
      on_full: what happens when the budget is reached: "refuse" further rows with an error, "evict" the rows that were
        updated longest ago, or "grow" on with a warning.
      max_age, min_norm, keep_count: which rows `shrink_tables` gives up: those that had no update for more than
        ``max_age`` steps, whose weights have a smaller L2 norm, or whose count of updates is smaller.
      count_decay: what `shrink_tables` multiplies counts by before.
      shrink_every: servers do the same after every so many updates.
    """
    name, program = name_of(table), default_main_program() if program is None else program
    lookups = [op for block in program.blocks for op in block.ops if name in op.input("W")]
    lookups = [op for op in lookups if op.attrs.get("is_sparse") and op.attrs.get("is_distributed")]
    if not lookups:
        raise ValueError(
            f"table_options: no lookup of the program has {name} as a table with is_sparse=True and is_distributed=True"
        )
    given = {
        "min_count": min_count,
        "probability": probability,
        "precision": precision,
        "wire": wire,
        "budget": _bytes_of("budget", budget),
        "trainer_budget": _bytes_of("trainer_budget", trainer_budget),
        "on_full": on_full,
        "max_age": max_age,
        "min_norm": min_norm,
        "keep_count": keep_count,
        "count_decay": count_decay,
        "shrink_every": shrink_every,
    }
    before = TableOptions.parse(lookups[0].attrs.get(TABLE_OPTIONS, ""))
    chosen = replace(before, **{option: value for option, value in given.items() if value is not None})
    short = {chosen.precision, chosen.wire} - {"native"}
    if short and program.global_block().var(name).dtype != VarType.FP32:
        raise ValueError(
            f"table_options: only float32 can be stored or sent as {short.pop()}, and {name} is not float32"
        )
    for op in lookups:
        op.set_attr(TABLE_OPTIONS, str(chosen))


def _bytes_of(option: str, text: int | str | None) -> int | None:
    if not isinstance(text, str):
        return text
    number = text.rstrip("KMGTIBkmgtib ")
    unit = text[len(number) :].strip().upper()
    try:
        return round(float(number) * _UNITS[unit])
    except (KeyError, ValueError):
        raise ValueError(f"table_options: {option} must be bytes, such as 8 * 10**9 or '8GB', not {text!r}") from None
