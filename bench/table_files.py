"""Saves a table, saves a delta of it and restores both: bytes, seconds, and whether all rows are the same.

    python bench/table_files.py --rows 80000000 --folder /fast/disk      # 5 GB of records of width 8

Rows have random ids and Adagrad's moments. The delta follows an update of a share of them. The original is given up
before the files are restored; a sample of its rows, and sums over all, are compared.
"""

import argparse
import resource
import shutil
import sys
import time
from pathlib import Path

import numpy as np

from refluid.files.storage import at
from refluid.files.writing import atomic_write
from refluid.ops.core.growing import SHARDS
from refluid.runtime.tables.files.chain import open_table, relative
from refluid.runtime.tables.files.loading import load_into
from refluid.runtime.tables.files.manifest import Base, new_id
from refluid.runtime.tables.files.saving import PartOrder, PartSnapshot, describe_table, manifest_of
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import Rule
from refluid.runtime.tables.table import Table

BATCH = 1 << 18


def fresh(width):
    return Table("emb", RecordForm(width, slots=("Moment",)), Rule("adagrad", {}))


def ids_of(begin, end):
    """Different numbers from all over int64."""
    return (np.arange(begin, end, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def update(table, ids, seed):
    grads = np.random.RandomState(seed).standard_normal((BATCH, table.form.width)).astype(np.float32)
    for begin in range(0, len(ids), BATCH):
        chosen = ids[begin : begin + BATCH]
        table.update(chosen, grads[: len(chosen)], table.begin_step(0.1))


def save(table, folder, base=None):
    snapshot = new_id()
    order = PartOrder(at(folder), snapshot, 0, "" if base is None else base.manifest.id)
    part = PartSnapshot(table, "emb", (0, SHARDS), order).write()
    named = None if base is None else Base(relative(base.path, at(folder)), base.manifest.id)
    made = manifest_of("emb", snapshot, describe_table(table, {}, weights_only=False), [part], named)
    with atomic_write(Path(folder) / "emb") as stream:
        stream.write(made.to_bytes())
    return open_table(Path(folder) / "emb")


def checksum(table):
    """Sums over all rows, which do not depend on their order."""
    rows, total = 0, np.uint64(0)
    for ids, records in table.records():
        rows += len(ids)
        with np.errstate(over="ignore"):
            total += records.astype(np.uint64).sum(1).dot(ids.view(np.uint64) | np.uint64(1))
    return rows, int(total)


def timed(what, action):
    began = time.perf_counter()
    found = action()
    seconds = time.perf_counter() - began
    size = found.manifest.bytes if hasattr(found, "manifest") else 0
    speed = "  %8.3f GB  %6.0f MB/s" % (size / 1e9, size / 1e6 / seconds) if size else ""
    print("%-10s %8.2f s%s" % (what, seconds, speed), flush=True)
    return found


def restore(saved, width):
    table = fresh(width)
    load_into(table, saved, (0, SHARDS))
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--touched", type=float, default=0.05, help="the share of rows of the delta")
    parser.add_argument("--folder", default="table_files.tmp", help="made, and removed in the end")
    chosen = parser.parse_args()
    folder = Path(chosen.folder)
    table, ids = fresh(chosen.width), ids_of(0, chosen.rows)
    timed("filled", lambda: update(table, ids, 0))
    whole = timed("saved", lambda: save(table, folder / "whole"))
    update(table, ids[: int(chosen.touched * chosen.rows)], 1)
    delta = timed("delta", lambda: save(table, folder / "delta", whole))
    sample = np.random.RandomState(2).choice(chosen.rows, min(chosen.rows, 100000), replace=False)
    rows, sums, step = table.read(ids[sample], creates=False), checksum(table), table.step
    table = None
    loaded = timed("restored", lambda: restore(delta, chosen.width))
    same = np.array_equal(loaded.read(ids[sample], creates=False), rows) and (checksum(loaded), loaded.step) == (
        sums,
        step,
    )
    print("rows       %d of %d bytes; peak memory %.1f GB" % (
        len(loaded), loaded.form.bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6))  # fmt: skip
    print("ratio      %.1f times fewer bytes in the delta" % (whole.manifest.bytes / delta.manifest.bytes))
    print("same       %s" % same)
    shutil.rmtree(folder)
    sys.exit(not same)


if __name__ == "__main__":
    main()
