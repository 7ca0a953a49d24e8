"""DataFeeder: from samples to feeds. Shapes and dtypes are those real Fluid gives."""

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import data_feeder


@pytest.fixture
def feeder():
    """Makes a DataFeeder for variables given as (name, shape, dtype, lod_level)."""

    def make(*descriptions):
        block = fluid.Program().global_block()
        variables = [
            block.create_var(name=name, shape=shape, dtype=dtype, lod_level=lod_level)
            for name, shape, dtype, lod_level in descriptions
        ]
        return fluid.DataFeeder(variables, fluid.CPUPlace())

    return make


def described(feed):
    return {name: (tensor.shape(), str(tensor._dtype()), tensor.lod()) for name, tensor in feed.items()}


def test_dense_samples_are_stacked_and_take_the_declared_dtype(feeder):
    feed = feeder(("x", [-1, 784], "float32", 0), ("y", [-1, 1], "int64", 0)).feed(
        [(np.zeros(784), 1), (np.ones(784), 2)]
    )
    assert described(feed) == {"x": ([2, 784], "VarType.FP32", []), "y": ([2, 1], "VarType.INT64", [])}
    assert np.array(feed["y"]).tolist() == [[1], [2]]


def test_samples_may_have_another_number_of_dims_than_declared(feeder):
    assert feeder(("image", [-1, 1, 4, 4], "float32", 0)).feed([(np.zeros(16),)] * 3)["image"].shape() == [3, 1, 4, 4]
    assert feeder(("x", [-1, 16], "float32", 0)).feed([(np.zeros((4, 4)),)])["x"].shape() == [1, 16]
    assert feeder(("free", [-1, -1, 3], "float32", 0)).feed([(np.zeros((2, 3)),)])["free"].shape() == [1, 2, 3]
    assert feeder(("scalar", [-1], "float32", 0)).feed([([1.0],)] * 8)["scalar"].shape() == [8]
    assert feeder(("x", [-1, 16], "float32", 0)).feed([])["x"].shape() == [0, 16]


def test_sizes_may_differ_from_those_declared_as_fluid_allows(feeder):
    assert feeder(("x", [-1, 3, 8, 8], "float32", 0)).feed([(np.zeros((3, 9, 9)),)])["x"].shape() == [1, 3, 9, 9]


@pytest.mark.parametrize(
    ("lod_level", "shape", "samples", "expected"),
    [
        (1, [-1, 1], [[1, 2, 3], [4], []], ([4, 1], [[0, 3, 4, 4]])),
        (1, [-1, 1], [[[1], [2]], [[4]]], ([3, 1], [[0, 2, 3]])),
        (1, [-1, 1], [np.array([1, 2]), np.array([3])], ([3, 1], [[0, 2, 3]])),
        (1, [-1, 2], [np.zeros((3, 2)), np.zeros((1, 2))], ([4, 2], [[0, 3, 4]])),
        (
            2,
            [-1, 3],
            [[[[1, 2, 3]], [[4, 5, 6], [7, 8, 9]]], [[[1, 1, 1]]]],
            ([4, 3], [[0, 2, 3], [0, 1, 3, 4]]),
        ),
    ],
)
def test_sequences_are_joined_and_their_offsets_kept(feeder, lod_level, shape, samples, expected):
    feed = feeder(("s", shape, "int64", lod_level)).feed([(sample,) for sample in samples])
    assert (feed["s"].shape(), feed["s"].lod()) == expected


def test_errors_name_the_variable_and_both_shapes(feeder):
    with pytest.raises(
        ValueError, match=r"variable x cannot take a batch of shape \[1, 10, 10\]\n .*float32\[-1, 784\]"
    ):
        feeder(("x", [-1, 784], "float32", 0)).feed([(np.zeros((10, 10)),)])
    with pytest.raises(ValueError, match=r"variable x got samples of different shapes, \[3\] and \[4\]"):
        feeder(("x", [-1, 4], "float32", 0)).feed([(np.zeros(4),), (np.zeros(3),)])
    with pytest.raises(ValueError, match="variable x does not take these samples"):
        feeder(("x", [-1, 4], "float32", 0)).feed([([1, 2],), ([1],)])
    with pytest.raises(ValueError, match="variable s takes nested sequences, but found 5"):
        feeder(("s", [-1, 1], "int64", 1)).feed([(5,)])
    with pytest.raises(ValueError, match="a sample has 1 fields, but 2 variables are fed: x, y"):
        feeder(("x", [-1, 4], "float32", 0), ("y", [-1, 1], "int64", 0)).feed([(np.zeros(4),)])


def test_variables_may_be_given_by_name():
    program = fluid.Program()
    program.global_block().create_var(name="x", shape=[-1, 2], dtype="float32")
    feed = fluid.DataFeeder(["x"], fluid.CPUPlace(), program=program).feed([([1, 2],)])
    assert described(feed) == {"x": ([1, 2], "VarType.FP32", [])}
    with pytest.raises(ValueError, match="nope"):
        fluid.DataFeeder(["nope"], fluid.CPUPlace(), program=program)
    with pytest.raises(TypeError, match="variables or their names, not int"):
        fluid.DataFeeder([3], fluid.CPUPlace())


def test_feed_parallel_takes_one_batch_for_each_device(feeder, monkeypatch):
    make = feeder(("x", [-1, 2], "float32", 0))
    batches = [[([1, 2],)], [([3, 4],), ([5, 6],)]]
    assert [feed["x"].shape() for feed in make.feed_parallel(batches, num_places=2)] == [[1, 2], [2, 2]]
    with pytest.raises(ValueError, match="2 batches for 1 devices"):
        list(make.feed_parallel(batches, num_places=1))
    monkeypatch.setenv("CPU_NUM", "2")
    assert len(list(make.feed_parallel(batches))) == 2


def test_decorate_reader_makes_feeds(feeder):
    make = feeder(("x", [-1, 2], "float32", 0))

    def reader():
        for _ in range(5):
            yield [([1, 2],)]

    assert [sorted(feed) for feed in make.decorate_reader(reader, multi_devices=False)()] == [["x"]] * 5
    parallel = make.decorate_reader(reader, multi_devices=True, num_places=2)
    assert [len(feeds) for feeds in parallel()] == [2, 2]
    strict = make.decorate_reader(reader, multi_devices=True, num_places=2, drop_last=False)
    with pytest.raises(ValueError, match="1 batches are left over for 2 devices"):
        list(strict())


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), fluid.core.VarDesc.VarType.FP32])
def test_convert_dtype_gives_the_name(dtype):
    assert data_feeder.convert_dtype(dtype) == "float32"


@pytest.mark.parametrize("dtype", ["foo", 5, int, fluid.core.VarDesc.VarType.LOD_TENSOR])
def test_convert_dtype_refuses_what_is_not_a_dtype(dtype):
    with pytest.raises(ValueError, match="is not a Fluid dtype"):
        data_feeder.convert_dtype(dtype)


def test_checks_say_what_was_expected():
    x = fluid.Program().global_block().create_var(name="x", shape=[1], dtype="float32")
    data_feeder.check_variable_and_dtype(x, "x", ["float32", "float64"], "fc")
    with pytest.raises(TypeError, match="fc: x must be int32 or int64, not float32"):
        data_feeder.check_variable_and_dtype(x, "x", ["int32", "int64"], "fc")
    with pytest.raises(TypeError, match="fc: x must be Variable, not int"):
        data_feeder.check_variable_and_dtype(3, "x", ["int64"], "fc")
    with pytest.raises(TypeError, match=r"concat: input must be list or tuple, not int. It holds variables"):
        data_feeder.check_type(3, "input", (list, tuple), "concat", "It holds variables.")


@pytest.mark.parametrize(
    ("data", "lengths", "shape", "dtype", "lod"),
    [
        ([[1, 2], [3]], [[2, 1]], [3, 1], "VarType.INT64", [[0, 2, 3]]),
        ([[1.5, 2], [3]], [[2, 1]], [3, 1], "VarType.FP64", [[0, 2, 3]]),
        ([[[1, 2]], [[3, 4], [5, 6]]], [[1, 2]], [3, 2, 1], "VarType.INT64", [[0, 1, 3]]),
        (np.ones((3, 2), "float32"), [[2, 1]], [3, 2], "VarType.FP32", [[0, 2, 3]]),
        (np.ones((4, 1)), [[2, 1], [1, 2, 1]], [4, 1], "VarType.FP64", [[0, 2, 3], [0, 1, 3, 4]]),
    ],
)
def test_create_lod_tensor(data, lengths, shape, dtype, lod):
    tensor = fluid.create_lod_tensor(data, lengths, fluid.CPUPlace())
    assert (tensor.shape(), str(tensor._dtype()), tensor.lod()) == (shape, dtype, lod)
    again = fluid.create_lod_tensor(tensor, lengths, fluid.CPUPlace())
    np.testing.assert_array_equal(again, tensor)


def test_create_lod_tensor_checks_the_lengths():
    with pytest.raises(ValueError, match=r"lengths \[\[2, 1\]\], but recursive_seq_lens is \[\[2, 2\]\]"):
        fluid.create_lod_tensor([[1, 2], [3]], [[2, 2]], fluid.CPUPlace())
    with pytest.raises(ValueError, match="the last offset is 4, but there are 3 rows"):
        fluid.create_lod_tensor(np.ones((3, 2)), [[2, 2]], fluid.CPUPlace())
    with pytest.raises(TypeError, match="not str"):
        fluid.create_lod_tensor("abc", [[1, 2]], fluid.CPUPlace())


def test_create_random_int_lodtensor_includes_both_ends():
    tensor = fluid.create_random_int_lodtensor([[20, 30]], [4], fluid.CPUPlace(), low=0, high=1)
    assert (tensor.shape(), tensor.lod()) == ([50, 4], [[0, 20, 50]])
    assert set(np.array(tensor).ravel().tolist()) == {0, 1}
