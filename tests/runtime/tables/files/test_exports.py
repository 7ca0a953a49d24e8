"""Exports of tables, read by the libraries of their formats, and what tables differ in."""

import importlib
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from safetensors.numpy import load_file

from refluid.files.storage import at
from refluid.files.tensors import read_rows
from refluid.runtime.tables.files import exports
from refluid.runtime.tables.files.chain import open_table
from refluid.runtime.tables.files.differences import compare
from refluid.runtime.tables.files.exports import FORMS, export, form_of
from tables_to_save import load, make, save, train

IDS = np.unique(np.random.RandomState(0).randint(-(2**63), 2**63 - 1, 500))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table with a delta whose rows lag behind, and the rows that its server would answer with."""
    folder = tmp_path_factory.mktemp("tables")
    tables = make("momentum", count=2)
    train(tables, IDS)
    save(tables, folder / "0")
    train(tables, IDS[::7], seed=1)
    save(tables, folder / "1", base=folder / "0")
    (table,) = load(folder / "1", tables[0])
    return open_table(folder / "1" / "emb"), table


def read(form, path):
    if form == "parquet":
        return {name: _array(column) for name, column in pa.parquet.read_table(path).to_pydict().items()}
    if form == "arrow":
        return {name: _array(column) for name, column in pa.ipc.open_file(path).read_all().to_pydict().items()}
    if form == "npz":
        return dict(np.load(path))
    if form == "safetensors":
        return load_file(path)
    rows, height, values = read_rows(io.BytesIO(path.read_bytes()))
    assert height == min(rows.max() + 1, 2**63 - 1)
    return {"id": rows, "weights": values}


def _array(column):
    return np.array(column)


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_exported_with_the_weights_that_servers_would_answer_with(tmp_path, trained, form):
    saved, table = trained
    assert export(saved, tmp_path / "out", form) == len(IDS)
    found = read(form, tmp_path / "out")
    assert set(found) == {"id", "weights"} and sorted(found["id"]) == sorted(IDS)
    np.testing.assert_array_equal(found["weights"].astype(np.float32), table.read(found["id"].astype(np.int64)))


@pytest.mark.parametrize("form", [form for form in FORMS if form != "lookup_table"])
def test_what_the_optimizer_keeps_is_exported_on_request(tmp_path, trained, form):
    saved, table = trained
    table.read(IDS)  # which brings them up to date
    export(saved, tmp_path / "out", form, slots=True)
    found = read(form, tmp_path / "out")
    assert list(found) == ["id", "weights", "Velocity", "count"] or form == "safetensors"
    records = {id: record for ids, records in table.records() for id, record in zip(ids.tolist(), records, strict=True)}
    expected = np.array([records[int(id)] for id in found["id"]])
    np.testing.assert_array_equal(found["count"], table.form.counts_of(expected))
    np.testing.assert_array_equal(found["Velocity"].astype(np.float32), table.form.slot_of(expected, "Velocity"))


def test_formats_are_told_by_the_ends_of_names(tmp_path, trained):
    assert [form_of(at(f"s/{name}")) for name in ("a.parquet", "a.b.npz", "c.safetensors", "d.arrow")] == [
        "parquet", "npz", "safetensors", "arrow",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="does not say how to write it; end it with .parquet"):
        form_of(at("rows"))
    with pytest.raises(ValueError, match="exported as parquet, arrow, .*, not as csv"):
        export(trained[0], tmp_path / "out", "csv")
    with pytest.raises(ValueError, match="no place for what the optimizer keeps"):
        export(trained[0], tmp_path / "out", "lookup_table", slots=True)


def test_a_missing_package_is_named(tmp_path, trained, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    monkeypatch.setattr(exports.importlib, "import_module", missing)
    with pytest.raises(ImportError, match="need the package pyarrow: pip install pyarrow"):
        export(trained[0], tmp_path / "out", "parquet")
    assert not list(tmp_path.iterdir())


def test_tables_are_compared_row_by_row(tmp_path, monkeypatch):
    one, other = make("sgd"), make("sgd")
    ids = np.arange(100)
    for tables in (one, other):
        for number in range(3):
            train(tables, ids, seed=number)
    train(one, [200, 201])
    train(other, [300])
    other[0].update(np.array([7]), np.full((1, 3), -2.5, np.float32), other[0].begin_step(1.0))
    save(one, tmp_path / "one")
    save(other, tmp_path / "other")
    pair = open_table(tmp_path / "one" / "emb"), open_table(tmp_path / "other" / "emb")
    for at_once in (1_000_000, 30):
        monkeypatch.setattr("refluid.runtime.tables.files.differences._AT_ONCE", at_once)
        found = compare(*pair)
        assert (found.same, found.different, found.only_first, found.only_second) == (99, 1, 2, 1)
        assert found.largest == pytest.approx(2.5) and found.largest_id == 7 and not found.none
        assert compare(*pair, tolerance=3.0).different == 0
        assert compare(pair[0], pair[0]).none


def test_a_nan_is_a_difference_and_infinities_may_be_the_same(tmp_path):
    def saved(folder, values):
        (table,) = make("sgd", width=1)
        table.update(np.arange(2), -np.array(values, np.float32).reshape(2, 1), table.begin_step(1.0))
        save([table], folder)
        return open_table(folder / "emb")

    first = saved(tmp_path / "0", [np.inf, 1.0])
    assert compare(first, first).none
    assert compare(first, saved(tmp_path / "1", [np.inf, np.nan])).different == 1
    with pytest.raises(ValueError, match="has rows of 1, .* of 2"):
        save(make("sgd", width=2), tmp_path / "2")
        compare(first, open_table(tmp_path / "2" / "emb"))
