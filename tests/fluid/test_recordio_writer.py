"""fluid.recordio_writer: the batches of a reader in recordio files."""

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.files import recordio


@pytest.fixture
def feeder():
    with fluid.program_guard(fluid.Program()):
        x = fluid.layers.data("x", [2])
        label = fluid.layers.data("label", [1], dtype="int64", lod_level=1)
        yield fluid.DataFeeder([x, label], fluid.CPUPlace())


def batches(count):
    return lambda: ([(np.full(2, i, "float32"), [i, i + 1])] for i in range(count))


def contents(path):
    return [[tensor.value.reshape(-1).tolist() for tensor in recordio.unpack_tensors(r)] for r in recordio.read(path)]


@pytest.mark.parametrize("compressor", list(fluid.core.RecordIOWriter.Compressor))
def test_one_file_holds_a_record_for_each_batch(tmp_path, feeder, compressor):
    path = str(tmp_path / "a.recordio")
    assert fluid.recordio_writer.convert_reader_to_recordio_file(path, batches(3), feeder, compressor) == 3
    assert contents(path) == [[[float(i), float(i)], [i, i + 1]] for i in range(3)]
    _, label = recordio.unpack_tensors(next(recordio.read(path)))
    assert label.lod() == [[0, 2]]


def test_fields_are_written_in_the_order_asked_for(tmp_path, feeder):
    path = str(tmp_path / "a.recordio")
    write = fluid.recordio_writer.convert_reader_to_recordio_file
    write(path, batches(1), feeder, feed_order=["label"])
    assert contents(path) == [[[0, 1]]]
    with pytest.raises(ValueError, match="feed_order names y, but the batch has x, label"):
        write(path, batches(1), feeder, feed_order=["y"])
    assert contents(path) == [[[0, 1]]]


def test_several_files_hold_all_batches(tmp_path, feeder):
    write = fluid.recordio_writer.convert_reader_to_recordio_files
    assert write(str(tmp_path / "a.recordio"), 2, batches(5), feeder) == 5
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a-00000.recordio", "a-00001.recordio", "a-00002.recordio"]
    assert [len(contents(tmp_path / name)) for name in names] == [2, 2, 1]


def test_wrong_arguments_are_named(feeder):
    write = fluid.recordio_writer.convert_reader_to_recordio_files
    with pytest.raises(ValueError, match=r"ends in .recordio; got 'a.txt'"):
        write("a.txt", 2, batches(1), feeder)
    with pytest.raises(ValueError, match="batch_per_file must be at least 1, not 0"):
        write("a.recordio", 0, batches(1), feeder)
