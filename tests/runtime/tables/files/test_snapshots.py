"""Snapshots of tables in files: any number of servers, whole and as deltas, while rows are pushed."""

import threading

import numpy as np
import pytest

from refluid.runtime.tables.files.chain import open_table
from refluid.runtime.tables.files.parts import TableFileError
from refluid.runtime.tables.files.saving import write_table
from tables_to_save import load, make, rows_of, save, train


def any_ids(count, seed=0):
    return np.unique(np.random.RandomState(seed).randint(-(2**63), 2**63 - 1, count))


@pytest.mark.parametrize("before", [1, 2, 3, 5])
def test_any_number_of_servers_loads_what_any_number_has_saved(tmp_path, before):
    tables = make(count=before)
    train(tables, any_ids(2000))
    train(tables, any_ids(2000)[::3], seed=1)
    expected = rows_of(tables)
    save(tables, tmp_path)
    for after in (1, 2, 3, 5):
        loaded = load(tmp_path, tables[0], after)
        assert rows_of(loaded) == expected
        assert [table.step for table in loaded] == [2] * after


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "ftrl"])
def test_a_loaded_table_goes_on_as_if_nothing_had_happened(tmp_path, optimizer):
    """Also rows that lag behind: they make up for steps before the snapshot with the learning rates of then."""
    tables, ids = make(optimizer, count=2), any_ids(300)
    for number in range(6):
        train(tables, ids[number::3], seed=number, rate=0.1 / (1 + number))
    save(tables, tmp_path)
    loaded = load(tmp_path, tables[0], 2)
    for number in range(6, 9):
        for each in (tables, loaded):
            train(each, ids[number::5], seed=number, rate=0.05)
    for table, other in zip(tables, loaded, strict=True):
        found = np.concatenate([ids for ids, _ in table.records()])
        np.testing.assert_array_equal(table.read(found), other.read(found))


def test_a_delta_holds_what_was_touched_and_given_up_and_is_much_smaller(tmp_path):
    tables, ids = make(count=2, width=8), np.arange(20_000)
    train(tables, ids)
    whole = save(tables, tmp_path / "0")
    touched = ids[::20]  # 5 %
    train(tables, touched, seed=1)
    first = save(tables, tmp_path / "1", base=tmp_path / "0")
    assert (first.rows, first.gone) == (len(touched), 0)
    assert 6 * first.bytes < whole.bytes
    assert sum(table.evict(before=1 + 1, count=1.5) for table in tables) == len(ids) - len(touched)
    train(tables, [3, -5], seed=2)  # one of those that were given up, and a new one
    second = save(tables, tmp_path / "2", base=tmp_path / "1")
    assert (second.rows, second.gone) == (2, len(ids) - len(touched))
    for count in (1, 3):
        assert rows_of(load(tmp_path / "2", tables[0], count)) == rows_of(tables)
    assert len(rows_of(load(tmp_path / "1", tables[0]))) == len(ids)


def test_deltas_follow_a_loaded_table(tmp_path):
    tables = make()
    train(tables, np.arange(1000))
    save(tables, tmp_path / "0")
    loaded = load(tmp_path / "0", tables[0], 3)
    train(loaded, np.arange(30), seed=1)
    assert save(loaded, tmp_path / "1", base=tmp_path / "0").rows == 30
    assert rows_of(load(tmp_path / "1", tables[0], 2)) == rows_of(loaded)


def test_a_delta_needs_to_know_what_was_touched_since_its_base(tmp_path):
    tables = make()
    train(tables, np.arange(100))
    save(tables, tmp_path / "0")
    save(tables, tmp_path / "1")
    with pytest.raises(ValueError, match="rows of emb that were touched since snapshot .* save the whole table"):
        save(tables, tmp_path / "2", base=tmp_path / "0")
    with pytest.raises(OSError, match="occupied"):
        (tmp_path / "occupied").write_text("a file, not a folder")
        save(tables, tmp_path / "occupied")
    train(tables, [1])
    with pytest.raises(ValueError, match="another one was begun since"):
        save(tables, tmp_path / "2", base=tmp_path / "1")
    save(tables, tmp_path / "2")  # a whole one goes on
    assert rows_of(load(tmp_path / "2", tables[0])) == rows_of(tables)


def test_a_snapshot_that_was_given_up_leaves_no_trace():
    (table,) = make()
    train([table], np.arange(50_000))
    expected = rows_of([table])
    parts = table.records()
    next(parts)
    train([table], np.arange(50_000), rate=0.0)  # saved for the snapshot
    parts.close()
    assert len(rows_of([table])) == len(expected)


def test_a_delta_of_more_rows_than_are_left_is_refused(tmp_path):
    tables, ids = make(width=1), np.arange(300_000)
    train(tables, ids)
    save(tables, tmp_path / "0")
    tables[0].evict(before=5)
    with pytest.raises(ValueError, match="more rows were given up than are left"):
        save(tables, tmp_path / "1", base=tmp_path / "0")


def test_what_was_not_touched_since_is_replaced_in_no_delta_and_a_base_is_never_changed(tmp_path):
    tables = make()
    train(tables, np.arange(500))
    save(tables, tmp_path / "0")
    expected = rows_of(tables)
    for number in range(1, 6):
        train(tables, np.arange(10 * number, 10 * number + 20), seed=number)
        save(tables, tmp_path / str(number), base=tmp_path / str(number - 1))
    assert rows_of(load(tmp_path / "5", tables[0], 2)) == rows_of(tables)
    assert rows_of(load(tmp_path / "0", tables[0])) == expected
    merged = write_table(open_table(tmp_path / "5" / "emb"), tmp_path / "merged" / "emb")
    assert merged.base is None and merged.rows == 500
    assert rows_of(load(tmp_path / "merged", tables[0], 2)) == rows_of(tables)
    with pytest.raises(ValueError, match="choose another place"):
        write_table(open_table(tmp_path / "5" / "emb"), tmp_path / "3" / "emb")


def test_weights_alone_are_those_of_the_moment_and_begin_with_any_optimizer(tmp_path):
    tables, ids = make("momentum", count=2, mu=0.9), np.arange(200)
    for number in range(5):
        train(tables, ids[number::2], seed=number)
    expected = {
        id: row for t in tables for ids_, _ in t.records() for id, row in zip(ids_.tolist(), t.read(ids_), strict=True)
    }
    save(tables, tmp_path / "plain", weights_only=True)
    save(tables, tmp_path / "all")
    write_table(open_table(tmp_path / "all" / "emb"), tmp_path / "merged" / "emb", weights_only=True)
    for folder in ("plain", "merged"):
        (loaded,) = load(tmp_path / folder, make("adam")[0])
        np.testing.assert_array_equal(loaded.read(np.array([*expected])), [*expected.values()])


def test_rows_that_are_pushed_while_they_are_saved_are_of_one_moment(tmp_path):
    """With a gradient of 1 the moment is the number of updates, which the count is too, and says what the weight is."""
    (table,) = make("adagrad", width=4)
    ids, ones = np.arange(40_000), np.ones((40_000, 4), np.float32)
    table.update(ids, ones, table.begin_step(1.0))
    stop = threading.Event()

    def push():
        random = np.random.RandomState(threading.get_native_id() % 2**31)
        while not stop.is_set():
            chosen = random.randint(0, 40_000 - 500)
            table.update(ids[chosen : chosen + 500], ones[:500], table.begin_step(1.0))

    threads = [threading.Thread(target=push) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        save([table], tmp_path / "0")
        for number in range(1, 4):
            save([table], tmp_path / str(number), base=tmp_path / str(number - 1))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    parts = [[*open_table(tmp_path / str(number) / "emb").records()] for number in range(4)]
    form, moments = table.form, []
    for part in parts:
        records = np.concatenate([records for _, records in part])
        assert sorted(np.concatenate([ids for ids, _ in part])) == [*ids]
        moments.append(form.slot_of(records, "Moment"))
        assert (moments[-1] == form.counts_of(records)[:, None]).all()
        np.testing.assert_array_equal(form.weights_of(records), weights_after(moments[-1].astype(int)))
    assert moments[3].sum() > moments[0].sum(), "nothing was pushed meanwhile"


def weights_after(updates):
    """What weights are after so many updates with a gradient of 1."""
    (table,) = make("adagrad", width=1)
    found = [0.0]
    for _ in range(updates.max()):
        table.update(np.array([0]), np.ones((1, 1), np.float32), table.begin_step(1.0))
        found.append(table.read(np.array([0]))[0, 0])
    return np.array(found, np.float32)[updates]


DAMAGES = {
    "a part is missing": lambda folder: next(folder.glob("*.rows")).unlink(),
    "a part is shorter": lambda folder: _change(next(folder.glob("*.rows")), lambda data: data[:-5]),
    "a byte of a row differs": lambda folder: _change(
        next(folder.glob("*.rows")), lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:]
    ),
    "a byte of the manifest differs": lambda folder: _change(folder / "emb", lambda data: data.replace(b"sgd", b"sge")),
    "the manifest is missing": lambda folder: (folder / "emb").unlink(),
}


def _change(path, change):
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["base", "delta"])
def test_damage_is_an_error_that_names_the_file(tmp_path, damage, which):
    tables = make("sgd")
    train(tables, np.arange(100))
    save(tables, tmp_path / "base")
    train(tables, np.arange(10))
    save(tables, tmp_path / "delta", base=tmp_path / "base")
    DAMAGES[damage](tmp_path / which)
    with pytest.raises(TableFileError, match=f"{which}/emb"):
        load(tmp_path / "delta", tables[0])


def test_a_base_that_was_replaced_is_noticed(tmp_path):
    tables = make()
    train(tables, np.arange(100))
    save(tables, tmp_path / "base")
    save(tables, tmp_path / "delta", base=tmp_path / "base")
    save(tables, tmp_path / "base")
    with pytest.raises(TableFileError, match="another one is there now"):
        load(tmp_path / "delta", tables[0])


def test_parts_of_different_snapshots_are_not_mixed(tmp_path):
    tables = make()
    train(tables, np.arange(100))
    first, second = save(tables, tmp_path / "0"), save(tables, tmp_path / "1")
    (tmp_path / "1" / second.parts[0].name).write_bytes((tmp_path / "0" / first.parts[0].name).read_bytes())
    with pytest.raises(TableFileError, match="belongs to another snapshot"):
        load(tmp_path / "1", tables[0])


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (("adagrad", 4), "emb has rows of 3 float32; in this program table emb has rows of 4 float32"),
        (("adam", 3), r"trained with adagrad \(Moment\); this program trains it with adam \(Moment1, Moment2\)"),
    ],
)
def test_a_table_of_another_program_is_refused(tmp_path, other, problem):
    tables = make()
    train(tables, np.arange(10))
    save(tables, tmp_path)
    with pytest.raises(TableFileError, match=problem):
        load(tmp_path, make(*other)[0])


def test_tables_are_saved_to_remote_file_systems():
    tables = make(count=2)
    train(tables, np.arange(100))
    save(tables, "memory://tables/0")
    train(tables, np.arange(7))
    save(tables, "memory://tables/1", base="memory://tables/0")
    assert rows_of(load("memory://tables/1", tables[0], 3)) == rows_of(tables)
