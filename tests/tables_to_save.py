"""Tables for tests of their files, and ways to save them as servers do."""

from itertools import pairwise

import numpy as np

from refluid.files.storage import at
from refluid.files.writing import atomic_write
from refluid.ops.core.growing import SHARDS
from refluid.runtime.tables.batches import owners, shared_out
from refluid.runtime.tables.files.chain import open_table, relative
from refluid.runtime.tables.files.loading import load_into
from refluid.runtime.tables.files.manifest import Base, new_id
from refluid.runtime.tables.files.saving import PartOrder, PartSnapshot, describe_table, manifest_of
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import OPTIMIZERS, Rule
from refluid.runtime.tables.table import Table


def make(optimizer="adagrad", width=3, count=1, **attrs):
    """The tables of so many servers."""
    form = RecordForm(width, slots=OPTIMIZERS[optimizer].states)
    return [Table("emb", form, Rule(optimizer, attrs)) for _ in range(count)]


def ranges(count):
    bounds = [SHARDS * place // count for place in range(count + 1)]
    return list(pairwise(bounds))


def train(tables, ids, seed=0, rate=0.1):
    """A step of all servers; each updates the rows of its shards."""
    ids = np.asarray(ids, np.int64)
    grads = np.random.RandomState(seed).randn(len(ids), tables[0].form.width).astype(tables[0].form.dtype)
    parts = shared_out(ids, owners([end - start for start, end in ranges(len(tables))]), len(tables))
    for table, places in zip(tables, parts, strict=True):
        table.update(ids[places], grads[places], table.begin_step(rate))


def save(tables, folder, base=None, weights_only=False, name="emb"):
    """Saves tables as the servers and the trainer of a job do."""
    folder, snapshot = at(folder), new_id()
    before = None if base is None else open_table(at(base) / name)
    parts = []
    for number, (table, shards) in enumerate(zip(tables, ranges(len(tables)), strict=True)):
        order = PartOrder(folder, snapshot, number, "" if before is None else before.manifest.id, weights_only)
        parts.append(PartSnapshot(table, name, shards, order).write())
    named = None if before is None else Base(relative(before.path, folder), before.manifest.id)
    manifest = manifest_of(name, snapshot, describe_table(tables[0], {}, weights_only=weights_only), parts, named)
    with atomic_write(folder / name) as stream:
        stream.write(manifest.to_bytes())
    return manifest


def load(folder, like, count=1, name="emb"):
    """Loads a table onto so many servers."""
    saved, found = open_table(at(folder) / name), []
    for shards in ranges(count):
        table = Table(name, like.form, like.rule, like.beginning, like.fills)
        load_into(table, saved, shards)
        found.append(table)
    return found


def rows_of(tables):
    """Every row by its id: its record as bytes."""
    found = {}
    for table in tables:
        for ids, records in table.records():
            for id, record in zip(ids.tolist(), records, strict=True):
                assert id not in found
                found[id] = record.tobytes()
    return found
