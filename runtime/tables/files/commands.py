"""The command ``refluid table``: looks at tables that servers have saved, and writes them in other forms."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from refluid.files.storage import AnyPath, at, files_below
from refluid.runtime.tables.files.chain import SavedTable, open_table
from refluid.runtime.tables.files.manifest import is_manifest
from refluid.runtime.tables.files.parts import TableFileError
from refluid.tables import as_text, table


def _add_arguments(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    inspect = actions.add_parser("inspect", help="shows what tables hold, and what they are based on")
    inspect.add_argument("path", metavar="PATH", help="a table, such as model/emb, or a folder with tables")
    head = actions.add_parser("head", help="shows some rows")
    _add_table(head)
    head.add_argument("-n", type=int, default=10, metavar="ROWS", help="how many rows (default 10)")
    head.add_argument("--ids", metavar="3,17", help="the rows of these ids instead; write --ids=-5 for negative ones")
    export = actions.add_parser("export", help="writes (id, row) to a file for other programs")
    _add_table(export)
    export.add_argument("out", metavar="OUT", help="the file to write")
    export.add_argument(
        "--to", metavar="FORM",
        help="parquet, arrow, npz, safetensors, or lookup_table of real Fluid; by default as OUT's name ends",
    )  # fmt: skip
    export.add_argument("--slots", action="store_true", help="also what the optimizer keeps, and counts of updates")
    merge = actions.add_parser("merge", help="writes a table and the deltas it consists of as one whole table")
    _add_table(merge)
    merge.add_argument("out", metavar="OUT", help="the table to write, such as merged/emb")
    merge.add_argument(
        "--weights-only", action="store_true", help="leave out what the optimizer keeps: any other one may go on"
    )
    diff = actions.add_parser("diff", help="compares the weights of two tables; exit code 1 if they differ")
    diff.add_argument("first", metavar="A", help="a table")
    diff.add_argument("second", metavar="B", help="another one")
    diff.add_argument("--tolerance", type=float, default=0.0, help="weights may differ by so much (default 0)")

    push = actions.add_parser("push", help="puts rows into Redis, where a service reads them")
    _add_table(push)
    push.add_argument("url", metavar="URL", help="such as redis://host:6379/0, rediss:// for TLS, unix:// for a socket")
    push.add_argument("--prefix", help="what keys begin with (by default the name of the table and a colon)")
    push.add_argument(
        "--delta", action="store_true", help="only what has changed since the snapshot whose rows are there"
    )


def _add_table(command: argparse.ArgumentParser) -> None:
    command.add_argument("table", metavar="TABLE", help="a table, such as model/emb")


def _run(chosen: argparse.Namespace) -> int:
    return _ACTIONS[chosen.action](chosen)


def _inspect(chosen: argparse.Namespace) -> int:
    path = at(chosen.path)
    paths = _tables_in(path) if path.is_dir() else [path]
    if not paths:
        raise TableFileError(f"there are no tables in {path}")
    print("\n\n".join(_described(open_table(each)) for each in paths))
    return 0


def _tables_in(folder: AnyPath) -> list[AnyPath]:
    paths = [folder.joinpath(*name.split("/")) for name in files_below(folder) if not name.endswith(".rows")]
    return [path for path in paths if is_manifest(path)]


def _described(saved: SavedTable) -> str:
    manifest, form = saved.manifest, saved.form
    optimizer = f"{manifest.optimizer} ({', '.join(form.slots) or 'no state'})" if manifest.optimizer else "none"
    precision = "" if form.precision == "native" else f", stored as {form.precision}"
    heads = ("snapshot", "kind", "rows", "gone", "step", "files", "bytes", "ids")
    rows = []
    for each in saved.snapshots:
        said = each.manifest
        ids = [number for part in said.parts for number in (part.lowest, part.highest) if number is not None]
        rows.append(
            (
                str(each.path), "whole" if said.base is None else "delta", f"{said.rows:,}", f"{said.gone:,}",
                f"{said.step:,}", str(len(said.parts)), f"{said.bytes:,}", f"{min(ids)} to {max(ids)}" if ids else "",
            )
        )  # fmt: skip
    lines = [
        f"table      {manifest.table}",
        f"rows       {form.width} x {form.dtype.name}{precision}; {form.bytes} bytes with all that is kept of each",
        f"optimizer  {optimizer}",
        as_text(table(heads, rows)),
    ]
    return "\n".join(lines)


def _head(chosen: argparse.Namespace) -> int:
    from refluid.runtime.tables.files.exports import rows_of

    wanted = None if chosen.ids is None else np.unique(np.array(_ids(chosen.ids), np.int64))
    limit = len(wanted) if wanted is not None else chosen.n
    found: list[tuple[int, np.ndarray]] = []
    saved = open_table(at(chosen.table))
    for ids, weights in rows_of(saved, wanted):
        found += zip(ids[: limit - len(found)].tolist(), weights, strict=False)
        if len(found) >= limit:
            break
    rows = [(str(id), " ".join(f"{value:.6g}" for value in row)) for id, row in found]
    print(as_text(table(("id", "weights"), rows)))
    missing = sorted(set(() if wanted is None else wanted.tolist()) - {id for id, _ in found})
    if missing:
        print(f"no rows    {', '.join(map(str, missing))}")
    return 1 if missing else 0


def _ids(text: str) -> list[int]:
    try:
        return [int(np.int64(int(each))) for each in text.split(",")]
    except (ValueError, OverflowError) as error:
        raise ValueError(f"--ids must look like 3,17, not {text}") from error


def _export(chosen: argparse.Namespace) -> int:
    from refluid.runtime.tables.files.exports import export, form_of

    out = at(chosen.out)
    rows = export(open_table(at(chosen.table)), out, chosen.to or form_of(out), slots=chosen.slots)
    print(f"wrote {rows:,} rows to {out}")
    return 0


def _merge(chosen: argparse.Namespace) -> int:
    from refluid.runtime.tables.files.saving import write_table

    out = at(chosen.out)
    made = write_table(open_table(at(chosen.table)), out, weights_only=chosen.weights_only)
    print(f"wrote {made.rows:,} rows to {out}, {made.bytes:,} bytes")
    return 0


def _diff(chosen: argparse.Namespace) -> int:
    from refluid.runtime.tables.files.differences import compare

    found = compare(open_table(at(chosen.first)), open_table(at(chosen.second)), chosen.tolerance)
    largest = f"{found.largest:g}" + ("" if found.largest_id is None else f", of row {found.largest_id}")
    print(f"same       {found.same:,} rows")
    print(f"differ     {found.different:,} rows; the largest difference is {largest}")
    print(f"only in A  {found.only_first:,} rows")
    print(f"only in B  {found.only_second:,} rows")
    return 0 if found.none else 1


def _push(chosen: argparse.Namespace) -> int:
    from refluid.runtime.tables.files.online import OnlineRows

    saved = open_table(at(chosen.table))
    prefix = f"{saved.manifest.table}:" if chosen.prefix is None else chosen.prefix
    pushed = OnlineRows(chosen.url, prefix).push(saved, delta=chosen.delta)
    print(f"put {pushed.rows:,} rows with the prefix {prefix}, and removed {pushed.gone:,}")
    return 0


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "inspect": _inspect,
    "head": _head,
    "export": _export,
    "merge": _merge,
    "diff": _diff,
    "push": _push,
}
COMMANDS = {"table": (_add_arguments, _run)}
