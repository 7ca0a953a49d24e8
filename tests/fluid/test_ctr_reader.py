"""`contrib.reader.ctr_reader`: csv and svm files, as a reader of a program."""

import gzip

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.contrib.reader.ctr_reader import ctr_reader
from refluid.tensors import LoDTensor

CSV = ["1 0.5,1.5 7,8,9 4", "0 -1,2e1 3 5,6", "1 0,0 18446744073709551615 0"]
SVM = ["1 a:7 b:4 a:8 other:5 a:9", "0 b:5 a:3 b:6", "1 a:-1"]
IDS = ([[7, 8, 9], [3], [-1]], [[4], [5, 6], [0]])


class Read:
    """A program that reads; ``feeds`` are the variables that it fills."""

    def __init__(self, files, format="csv", batch_size=2, **options):
        self.main, self.startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x = fluid.layers.data("x", [2])
            ids = [fluid.layers.data(name, [1], dtype="int64", lod_level=1) for name in ("a", "b")]
            label = fluid.layers.data("label", [1], dtype="int64")
            feeds = [x, *ids, label] if format == "csv" else [*ids, label]
            given = {
                "feed_dict": feeds,
                "file_type": "plain",
                "file_format": format,
                "dense_slot_index": [1],
                "sparse_slot_index": [2, 3],
                "capacity": 4,
                "thread_num": 1,
                "batch_size": batch_size,
                "file_list": [str(file) for file in files],
                "slots": ["a", "b"],
            }
            self.reader = ctr_reader(**{**given, **options})
            self.outputs = fluid.layers.read_file(self.reader)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.startup)

    def batches(self):
        """The batches of one pass: arrays, and lists of sequences."""
        found = []
        self.reader.start()
        try:
            while True:
                found.append([_plain(v) for v in self.exe.run(self.main, fetch_list=self.outputs, return_numpy=False)])
        except fluid.core.EOFException:
            self.reader.reset()
        return found


def _plain(value):
    if isinstance(value, LoDTensor) and value.lod():
        return [part.ravel().tolist() for part in np.split(np.array(value), value.lod()[0][1:-1])]
    return np.array(value).tolist()


def write(path, lines):
    path.write_text("\n".join(lines))
    return path


def test_csv_files_fill_dense_and_sparse_slots_and_the_label(tmp_path):
    read = Read([write(tmp_path / "a.txt", CSV)])
    expected = [
        [[[0.5, 1.5], [-1.0, 20.0]], IDS[0][:2], IDS[1][:2], [[1], [0]]],
        [[[0.0, 0.0]], IDS[0][2:], IDS[1][2:], [[1]]],
    ]
    assert read.batches() == expected
    assert read.batches() == expected, "a second pass"


def test_svm_files_have_ids_by_slot_and_an_empty_slot_is_a_zero(tmp_path):
    read = Read([write(tmp_path / "a.txt", SVM)], "svm", batch_size=3)
    assert read.batches() == [[*IDS, [[1], [0], [1]]]]


def test_files_may_be_compressed_whatever_their_name(tmp_path):
    (tmp_path / "a.txt").write_bytes(gzip.compress("\n".join(SVM).encode()))
    read = Read([tmp_path / "a.txt"], "svm", batch_size=3, file_type="gzip")
    assert read.batches() == [[*IDS, [[1], [0], [1]]]]


def test_several_files_are_read_at_once(tmp_path):
    files = [write(tmp_path / f"{i}.txt", [f"{i} a:{10 * i + n} b:{n}" for n in range(5)]) for i in range(4)]
    read = Read(files, "svm", batch_size=3, thread_num=3)
    ids = [value for batch in read.batches() for (value,) in batch[0]]
    assert sorted(ids) == sorted(10 * i + n for i in range(4) for n in range(5))


def test_many_slots_and_long_lines(tmp_path):
    rng = np.random.RandomState(0)
    names = [f"slot{i}" for i in range(40)]
    lines, expected = [], []
    for label in (0, 1):
        words = [
            (names[slot], value)
            for slot, value in zip(rng.randint(0, 40, 500), rng.randint(1, 10**9, 500), strict=True)
        ]
        lines.append(" ".join([str(label), *(f"{name}:{value}" for name, value in words)]))
        expected.append([[value for name, value in words if name == slot] or [0] for slot in names])
    file = write(tmp_path / "a.txt", lines)
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        feeds = [fluid.layers.data(name, [1], dtype="int64", lod_level=1) for name in names]
        feeds.append(fluid.layers.data("label", [1], dtype="int64"))
        reader = ctr_reader(feeds, "plain", "svm", [], [], 2, 1, 2, [str(file)], names)
    (batch,) = reader.queue.source(0)
    assert [_plain(value) for value in batch[:-1]] == [list(each) for each in zip(*expected, strict=True)]


def test_a_reader_of_click_data_has_a_position(tmp_path):
    file = write(tmp_path / "a.txt", [f"1 a:{n} b:1" for n in range(1, 7)])
    read = Read([file], "svm")
    read.reader.start()
    read.exe.run(read.main, fetch_list=read.outputs, return_numpy=False)
    state = read.reader.state_dict()
    read.reader.reset()
    resumed = Read([file], "svm", name="resumed")
    resumed.reader.load_state_dict(state)
    assert [batch[0] for batch in resumed.batches()] == [[[3], [4]], [[5], [6]]]


@pytest.mark.parametrize(
    ("format", "line", "problem"),
    [
        ("svm", "1 a:7 b", "expected slot:id, found 'b'"),
        ("svm", "1 a:7 b:", "expected slot:id, found 'b:'"),
        ("svm", "1 a:x", "slot a .ids., number 1 of 3: expected an integer, found 'x'"),
        ("svm", "", "expected a label, but the line is empty"),
        ("svm", "yes a:1", "slot label .*expected an integer, found 'yes'"),
        ("csv", "1 0.5,1.5 7", "slot b .*has 0 values"),
        ("csv", "1 0.5 7 8", "slot x .*expected a multiple of 2 values, found 1"),
        ("csv", "1 0.5,1.5 7,,8 8", "expected numbers between commas, found '7,,8'"),
        ("csv", "1 0.5,1.5 7, 8", "expected numbers between commas, found '7,'"),
        ("csv", "1 0.5,x 7 8", "slot x .*expected a number, found 'x'"),
    ],
)
def test_a_malformed_line_is_reported_with_file_and_line(tmp_path, format, line, problem):
    good = CSV if format == "csv" else SVM
    read = Read([write(tmp_path / "a.txt", [good[0], good[1], line, good[2]])], format)
    with pytest.raises(ValueError, match=f"a.txt, line 3: {problem}") as error:
        read.batches()
    assert f"the line    {line}\n" in str(error.value) and "expected    label " in str(error.value)
    read.reader.reset()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"file_type": "zip"}, "file_type must be 'gzip' or 'plain', not 'zip'"),
        ({"file_format": "json"}, "file_format must be 'csv' or 'svm', not 'json'"),
        ({"thread_num": 0}, "thread_num must be at least 1, not 0"),
        ({"file_list": []}, "file_list must list the files to read"),
        (
            {"sparse_slot_index": [2]},
            r"feed_dict has 4 variables .x, a, b, label.; expected 3, for field 1, field 2, the label",
        ),
        ({"dense_slot_index": [0]}, "fields of slots are numbered from 1"),
        ({"file_format": "svm", "slots": ["a", "b", "a"]}, "slots must not contain a name twice"),
    ],
)
def test_arguments_are_checked(options, problem):
    with pytest.raises(ValueError, match=problem):
        Read(["a.txt"], **options)
