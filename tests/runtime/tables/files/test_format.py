"""The files of tables: what is written is read, and nothing that is damaged or forged is taken for something else."""

import json
import struct
import tracemalloc
import zlib
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refluid.files.storage import at
from refluid.files.writing import atomic_write
from refluid.runtime.tables.files import parts as module
from refluid.runtime.tables.files.chain import open_table
from refluid.runtime.tables.files.manifest import Manifest, new_id, parse_manifest
from refluid.runtime.tables.files.parts import GONE, PAST, ROWS, PartWriter, TableFileError, read_part
from refluid.runtime.tables.records import RecordForm
from tables_to_save import make, rows_of, save

IDS = st.integers(-(2**63), 2**63 - 1)
FORMS = st.builds(
    RecordForm,
    st.integers(1, 9),
    st.sampled_from([np.dtype(np.float32), np.dtype(np.float64)]),
    st.sampled_from([(), ("Moment",), ("Moment1", "Moment2")]),
)
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SNAPSHOT = "0123456789abcdef" * 2


def write_part(path, form, ids, gone=(), rates=()):
    """Writes a part whose records have random words; returns it and the records."""
    records = np.random.RandomState(0).randint(0, 2**32 - 1, (len(ids), form.words), np.uint64).astype(np.uint32)
    records[:, :2] = np.array(ids, np.int64).view(np.uint32).reshape(-1, 2)
    with atomic_write(path) as stream:
        writer = PartWriter(stream, SNAPSHOT)
        writer.write_numbers(PAST, np.array(rates, np.float64))
        writer.write_numbers(GONE, np.array(gone, np.int64))
        places = np.array_split(np.arange(len(ids)), 3)
        writer.write_rows(form, ((np.array(ids, np.int64)[place], records[place]) for place in places))
        return writer.finish(path.name, 0, 256, 7), records


def read(path, part, form):
    found = {PAST: [np.empty(0)], GONE: [np.empty(0, np.int64)], ROWS: [np.empty((0, form.words), np.uint32)]}
    for kind, values in read_part(path, part, SNAPSHOT, form):
        found[kind].append(values)
    return [np.concatenate(found[kind]) for kind in (PAST, GONE, ROWS)]


@quick
@given(form=FORMS, ids=st.lists(IDS, unique=True), gone=st.lists(IDS), rates=st.lists(st.floats(allow_nan=False)))
@pytest.mark.parametrize("most", [module.MOST, 64])
def test_what_is_written_is_read(tmp_path, most, form, ids, gone, rates):
    with mock.patch.object(module, "MOST", most):
        part, records = write_part(tmp_path / "emb.0.rows", form, ids, gone, rates)
        found = read(tmp_path / "emb.0.rows", part, form)
    for one, other in zip(found, (rates, gone, records), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (part.rows, part.gone) == (len(ids), len(gone))
    assert (part.lowest, part.highest) == ((min(ids), max(ids)) if ids else (None, None))


@quick
@given(place=st.floats(0, 1), new=st.binary(min_size=1, max_size=9), cut=st.booleans(), grown=st.booleans())
def test_a_part_that_was_changed_anywhere_is_refused(tmp_path, place, new, cut, grown):
    path, form = tmp_path / "emb.0.rows", RecordForm(2, slots=("Moment",))
    part, _ = write_part(path, form, [1, -5, 2**62], [7], [0.5])
    data = path.read_bytes()
    begin = int(place * (len(data) - 1))
    changed = data[:begin] + new + (b"" if cut else data[begin + (0 if grown else len(new)) :])
    path.write_bytes(changed)
    if changed == data:
        read(path, part, form)
        return
    with pytest.raises(TableFileError, match="emb.0.rows"):
        read(path, part, form)
    with pytest.raises(TableFileError, match="emb.0.rows"):  # also if the manifest knows the size
        read(path, replace(part, bytes=len(changed)), form)


def forged(kind, count, size):
    header = struct.pack("<4sIQQ", kind, 0, count, size)
    return b"RFROWS 1" + SNAPSHOT.encode() + header + struct.pack("<I", zlib.crc32(header))


@pytest.mark.parametrize(
    ("kind", "count", "size", "problem"),
    [
        (ROWS, 2**60, 2**60 * 40, "takes"),
        (ROWS, 1000, 40_000, "ends where"),
        (GONE, 2**61 + 1, 8, "takes"),
        (PAST, 2**20, 2**23, "ends where"),
        (b"MORE", 1, 1, "unknown kind"),
    ],
)
def test_forged_sizes_take_no_memory(tmp_path, kind, count, size, problem):
    path, form = tmp_path / "emb.0.rows", RecordForm(6)
    part, _ = write_part(path, form, [1])
    data = forged(kind, count, size % 2**64)
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(TableFileError, match=problem):
        read(path, replace(part, bytes=len(data)), form)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def manifest(**changes):
    part = module.Part("emb.0.rows", 0, 256, 3, 0, 5, 100, 1)
    made = Manifest(SNAPSHOT, "emb", RecordForm(3), "sgd", {"l2": 0.0}, (0.0,) * 8, {}, (part,))
    return replace(made, **changes)


def test_a_manifest_is_read_as_it_was_written():
    for made in (manifest(), manifest(form=RecordForm(4, np.dtype("float64"), ("Moment",)), states={"Moment": "m"})):
        assert parse_manifest(made.to_bytes(), "emb") == made


def signed(**changes):
    """A manifest with other values, and the right checksum."""
    described = {**json.loads(manifest().to_bytes()), **changes}
    del described["checksum"]
    checksum = zlib.crc32(json.dumps(described, sort_keys=True, separators=(",", ":")).encode())
    return json.dumps({**described, "checksum": checksum}).encode()


PART = json.loads(manifest().to_bytes())["parts"][0]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a sound manifest"),
        (b"[1]", "not the manifest of a table"),
        (b"[" * 100_000, "not a sound manifest"),
        (signed(format=2), "has format 2; this version reads format 1"),
        (signed(id="../x"), "not the id of a snapshot"),
        (signed(form={"width": 2**40, "dtype": "float32", "slots": [], "precision": "native", "has_id": True}), "form"),
        (signed(form={"width": 3, "dtype": "object", "slots": [], "precision": "native", "has_id": True}), "float32"),
        (signed(parts=[{**PART, "name": "../../etc/passwd"}]), "not a name for a file"),
        (signed(parts=[{**PART, "end": 255}]), "shards 255 to 256 are in no file"),
        (signed(parts=[PART, PART]), "are in no file, or in two"),
        (signed(parts=[{**PART, "rows": -1}]), "out of range"),
        (signed(parts=[{**PART, "rows": "3"}]), "expected a whole number"),
        (signed(parts=[{**PART, "lowest": 2**63}]), "not a sound manifest"),
        (signed(parts=[]), "shards 0 to 256"),
        (signed(shards=64), "64 shards"),
        (signed(beginning=[1.0]), "expected 8 numbers"),
        (signed(base={"path": "x", "id": "y"}), "not the id of a snapshot"),
        (manifest().to_bytes().replace(b'"rows": 3', b'"rows": 4'), "does not match its checksum"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(data, problem):
    with pytest.raises(TableFileError, match=f"(?s)folder/emb.*{problem}"):
        parse_manifest(data, "folder/emb")


@quick
@given(st.binary(max_size=8), st.floats(0, 1))
def test_a_manifest_that_was_changed_anywhere_is_refused_or_the_same(new, place):
    data = manifest().to_bytes()
    begin = int(place * len(data))
    try:
        found = parse_manifest(data[:begin] + new + data[begin + len(new) :], "emb")
    except TableFileError:
        return
    assert found == manifest()


def test_deltas_that_are_based_on_each_other_are_refused(tmp_path):
    tables = make("sgd")
    save(tables, tmp_path / "0")
    made = save(tables, tmp_path / "1", base=tmp_path / "0")
    circular = replace(made, base=replace(made.base, path="emb", id=made.id))
    (tmp_path / "1" / "emb").write_bytes(circular.to_bytes())
    with pytest.raises(TableFileError, match="based on itself"):
        open_table(tmp_path / "1" / "emb")


CHANGES = st.one_of(
    st.tuples(st.just("train"), st.lists(st.integers(-9, 9), unique=True)),
    st.tuples(st.just("evict"), st.floats(0.5, 3.5)),
    st.tuples(st.just("save"), st.none()),
)


@quick
@given(changes=st.lists(CHANGES, max_size=12))
def test_a_chain_holds_what_the_table_holds(tmp_path, changes):
    """Rows come, change and go between snapshots."""
    folder = tmp_path / new_id()
    (table,) = make("adagrad", width=1)
    save([table], folder / "0")
    number = 0
    for what, value in [*changes, ("save", None)]:
        if what == "train":
            ids = np.array(value, np.int64)
            table.update(ids, np.ones((len(ids), 1), np.float32), table.begin_step(0.5))
        elif what == "evict":
            table.evict(count=value)
        else:
            number += 1
            save([table], folder / str(number), base=folder / str(number - 1))
    saved = open_table(at(folder) / str(number) / "emb")
    found = {
        id: record.tobytes()
        for ids, records in saved.records()
        for id, record in zip(ids.tolist(), records, strict=True)
    }
    assert found == rows_of([table])
