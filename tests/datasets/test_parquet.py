"""Parquet and Arrow files in a dataset: the same batches as from text."""

import sys

import fsspec
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import ColumnError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = [  # dense x, ids, label
    ([0.5, 0.0], [7, 0, 9], 1),
    ([1.5, 2.5], [4], 0),
    ([-1.0, 3.0], [0], 1),
    ([4.0, 5.0], [1, 2, 3, 4], 0),
]


def table(**changes):
    x, ids, label = zip(*ROWS, strict=True)
    columns = {
        "unused": pa.array(["a", "b", "c", "d"]),
        "ids": pa.array(ids, pa.list_(pa.int64())),
        "label": pa.array(label),
        "x": pa.array(x, pa.list_(pa.float32(), 2)),
    }
    return pa.table({**columns, **changes})


def write_arrow(found, path, new=pa.ipc.new_file):
    with new(str(path), found.schema) as writer:
        writer.write_table(found)


WRITERS = {
    "a.parquet": pq.write_table,
    "a.arrow": write_arrow,
    "stream.arrow": lambda found, path: write_arrow(found, path, pa.ipc.new_stream),
}


def dataset(files, kind="QueueDataset", batch_size=3, **shapes):
    with fluid.program_guard(fluid.Program()):
        variables = [
            fluid.layers.data("x", shapes.get("x", [2])),
            fluid.layers.data("ids", [1], dtype="int64", lod_level=1),
            fluid.layers.data("label", [1], dtype="int64"),
        ]
    made = fluid.DatasetFactory().create_dataset(kind)
    made.set_use_var(variables)
    made.set_batch_size(batch_size)
    made.set_filelist([str(file) for file in files])
    return made


def feeds(*arguments, **options):
    made = dataset(*arguments, **options)
    if hasattr(made, "load_into_memory"):
        made.load_into_memory()
    return [
        {name: (np.array(value), getattr(value, "lod", list)()) for name, value in feed.items()}
        for feed in made.feeds()
    ]


def text_file(folder):
    lines = [f"2 {x[0]} {x[1]} {len(ids)} {' '.join(map(str, ids))} 1 {label}" for x, ids, label in ROWS]
    (folder / "a.txt").write_text("\n".join(lines))
    return folder / "a.txt"


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        for name in one:
            np.testing.assert_array_equal(one[name][0], other[name][0])
            assert one[name][0].dtype == other[name][0].dtype and one[name][1] == other[name][1]


@pytest.mark.parametrize("name", WRITERS)
def test_columns_give_the_batches_that_text_gives(tmp_path, name):
    WRITERS[name](table(), tmp_path / name)
    assert_equal(feeds([tmp_path / name]), feeds([text_file(tmp_path)]))


def test_text_and_columns_may_be_mixed(tmp_path):
    pq.write_table(table(), tmp_path / "b.parquet")
    text = text_file(tmp_path)
    assert_equal(feeds([text, tmp_path / "b.parquet"]), feeds([text, text]))


def test_zeros_of_sequences_in_memory_are_dropped_as_those_of_text_are(tmp_path):
    pq.write_table(table(), tmp_path / "a.parquet")
    (first, second) = found = feeds([tmp_path / "a.parquet"], kind="InMemoryDataset")
    assert_equal(found, feeds([text_file(tmp_path)], kind="InMemoryDataset"))
    assert first["ids"][0].ravel().tolist() == [7, 9, 4, 0] and first["ids"][1] == [[0, 2, 3, 4]]
    np.testing.assert_array_equal(first["x"][0], [[0.5, 0.0], [1.5, 2.5], [-1.0, 3.0]])
    assert second["label"][0].tolist() == [[0]]


@pytest.mark.parametrize(
    "column",
    {
        "large lists": ("ids", pa.array([row[1] for row in ROWS], pa.large_list(pa.int32()))),
        "unsigned": ("ids", pa.array([row[1] for row in ROWS], pa.list_(pa.uint64()))),
        "doubles": ("x", pa.array([row[0] for row in ROWS], pa.list_(pa.float64()))),
        "nested": ("x", pa.array([[[v] for v in row[0]] for row in ROWS], pa.list_(pa.list_(pa.float32(), 1), 2))),
        "booleans": ("label", pa.array([bool(row[2]) for row in ROWS])),
        "lists of one": ("label", pa.array([[row[2]] for row in ROWS], pa.list_(pa.int8(), 1))),
        "halves": ("x", pa.array([np.float16(row[0]) for row in ROWS], pa.list_(pa.float16()))),
        "whole numbers": ("x", None),
    }.items(),
    ids=lambda case: case[0],
)
def test_numbers_of_other_types_are_converted(tmp_path, column):
    name, values = column[1]
    if values is None:
        values = pa.array([[1, 2]] * 4, pa.list_(pa.int64(), 2))
    pq.write_table(table(**{name: values}), tmp_path / "a.parquet")
    found = feeds([tmp_path / "a.parquet"])
    if column[0] == "whole numbers":
        np.testing.assert_array_equal(found[0]["x"][0], np.array([[1, 2]] * 3, np.float32))
    else:
        assert_equal(found, feeds([text_file(tmp_path)]))


def test_ids_of_64_bits_keep_their_bits(tmp_path):
    ids = pa.array([[2**64 - 1, 5]] * 4, pa.list_(pa.uint64()))
    pq.write_table(table(ids=ids), tmp_path / "a.parquet")
    assert feeds([tmp_path / "a.parquet"])[0]["ids"][0].ravel().tolist() == [-1, 5] * 3


def test_an_empty_list_is_a_sequence_of_one_zero_and_long_lists_are_read_whole(tmp_path):
    ids = [[], list(range(1, 301)), [3], [*range(1, 20001)]]
    pq.write_table(table(ids=pa.array(ids, pa.list_(pa.int64()))), tmp_path / "a.parquet")
    (found,) = feeds([tmp_path / "a.parquet"], batch_size=4)
    assert found["ids"][1] == [[0, 1, 301, 302, 20302]]
    assert found["ids"][0].ravel().tolist() == [0, *ids[1], 3, *ids[3]]


def test_files_are_read_in_parts(tmp_path, monkeypatch):
    from refluid.datasets import parquet

    monkeypatch.setattr(parquet, "_ROWS", 2)
    for name, write in WRITERS.items():
        write(pa.concat_tables([table(), table()]).combine_chunks(), tmp_path / name)
        assert_equal(feeds([tmp_path / name]), feeds([text_file(tmp_path)] * 2))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"ids": pa.array(["a"] * 4)}, "column ids: the column is string; expected list<int64>"),
        ({"ids": pa.array([[0.5]] * 4)}, "column ids: the column is list<.*double>; expected list<int64>"),
        ({"ids": pa.array([[[1]]] * 4)}, "column ids: the column is list<.*list<.*>>; expected list<int64>"),
        ({"ids": pa.array([[1], [2], [3, None], [4]])}, "column ids: row 2 has a null; expected list<int64>"),
        ({"ids": pa.array([[1], None, [3], [4]])}, "column ids: row 1 has a null"),
        ({"label": pa.array([1, 2, None, 3])}, "column label: row 2 has a null; expected int64"),
        ({"label": pa.array([[1], [2], [], [3]])}, "column label: row 2 has 0 values; expected int64"),
        (
            {"x": pa.array([[1.0, 2.0], [1.0], [], []])},
            r"column x: row 1 has 1 values; .* fixed_size_list<float32>\[2\]",
        ),
        ({"x": pa.array([1.0] * 4)}, r"column x: row 0 has 1 values; expected fixed_size_list<float32>\[2\]"),
    ],
)
def test_what_does_not_fit_is_reported_with_file_and_column(tmp_path, changes, problem):
    pq.write_table(table(**changes), tmp_path / "bad.parquet")
    with pytest.raises(ColumnError, match=f"bad.parquet, {problem}"):
        feeds([tmp_path / "bad.parquet"])


def test_a_missing_column_is_reported_with_those_that_exist(tmp_path):
    pq.write_table(table().drop_columns(["label"]), tmp_path / "a.parquet")
    with pytest.raises(ColumnError, match="a.parquet, column label: there is no such column; there are unused, ids, x"):
        feeds([tmp_path / "a.parquet"])


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_damaged_file_is_reported(tmp_path, name):
    (tmp_path / name).write_bytes(b"this is text\n" * 10)
    with pytest.raises(ColumnError, match=f"{name}: not a file of this kind"):
        feeds([tmp_path / name])


def test_files_elsewhere_are_read(tmp_path):
    pq.write_table(table(), tmp_path / "a.parquet")
    url = "memory://parquet/a.parquet"
    with fsspec.open(url, "wb") as stream:
        stream.write((tmp_path / "a.parquet").read_bytes())
    assert_equal(feeds([url]), feeds([text_file(tmp_path)]))


def test_a_file_that_a_command_downloads_is_read(tmp_path):
    pq.write_table(table(), tmp_path / "a.parquet")
    made = dataset(["hdfs:/somewhere/a.parquet"])
    made.set_download_cmd(f"cat {tmp_path / 'a.parquet'} #")
    assert [feed["label"].shape for feed in made.feeds()] == [(3, 1), (1, 1)]


def test_rows_have_no_ids(tmp_path):
    pq.write_table(table(), tmp_path / "a.parquet")
    made = dataset([tmp_path / "a.parquet"], "InMemoryDataset")
    made.set_merge_by_lineid(2)
    with pytest.raises(ValueError, match="a.parquet: rows have no ids, which set_merge_by_lineid .* need"):
        made.load_into_memory()


def test_a_pipe_command_makes_text_of_any_file(tmp_path):
    pq.write_table(table(), tmp_path / "a.parquet")
    made = dataset([tmp_path / "a.parquet"])
    made.set_pipe_command(f"cat > /dev/null; cat {text_file(tmp_path)}")
    assert [feed["label"].shape for feed in made.feeds()] == [(3, 1), (1, 1)]


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"a.parquet: reading .* needs the package pyarrow: pip install pyarrow"):
        feeds([tmp_path / "a.parquet"])
