"""Layers of shapes, indices and constants: what golden cases cannot show, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OpError

layers = fluid.layers


def data(name, shape, dtype="float32"):
    return layers.data(name, shape, append_batch_size=False, dtype=dtype, stop_gradient=False)


def run(*fetch_list, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(fetch_list))


def test_hash_layer_gives_the_numbers_of_its_op():
    ids = data("ids", [4, 3], "int64")
    (value,) = run(layers.hash(ids, hash_size=1000, num_hash=4), ids=np.arange(12).reshape(4, 3))

    assert value.shape == (4, 4, 1) and value.dtype == np.int64
    assert ((value >= 0) & (value < 1000)).all() and len(np.unique(value)) > 8


def test_crop_tensor_takes_offsets_from_a_variable():
    x, offsets = data("x", [4, 5]), data("offsets", [2], "int32")
    given = np.arange(20, dtype="float32").reshape(4, 5)
    (value,) = run(layers.crop_tensor(x, shape=[2, 3], offsets=offsets), x=given, offsets=np.array([1, 2], "int32"))

    np.testing.assert_array_equal(value, given[1:3, 2:5])


def test_a_dim_that_only_a_variable_knows_is_unknown():
    x = data("x", [2, 3, 4, 5])
    four = layers.fill_constant([1], "int32", 2)

    assert layers.pad2d(x, layers.assign(np.array([1, 1, 1, 1], "int32"))).shape == (2, 3, -1, -1)
    assert layers.topk(x, four)[0].shape == (2, 3, 4, -1)


def test_sign_takes_an_array():
    (value,) = run(layers.sign(np.float32([3.0, -2.0, 0.0])))
    np.testing.assert_array_equal(value, [1.0, -1.0, 0.0])


def test_expand_as_knows_its_shape():
    assert layers.expand_as(data("x", [2, 1]), data("y", [4, 3])).shape == (4, 3)


def test_squeeze_leaves_named_dims_that_are_not_1():
    x = data("x", [2, 1, 3])
    y = layers.squeeze(x, [1, 2])
    (value,) = run(y, x=np.zeros((2, 1, 3), "float32"))

    assert y.shape == value.shape == (2, 3)


def test_a_shape_computed_from_another_shape_is_compiled_in():
    x = data("x", [-1, 6])
    rows = layers.slice(layers.shape(x), [0], [0], [1])
    y = layers.reshape(x, [layers.elementwise_mul(rows, layers.fill_constant([1], "int32", 2)), 3])
    for count in (2, 5):
        assert run(y, x=np.zeros((count, 6), "float32"))[0].shape == (2 * count, 3)


def test_step_counter_goes_on_from_run_to_run():
    counter = layers.autoincreased_step_counter(begin=3, step=2)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())

    assert [int(executor.run(fetch_list=[counter])[0][0]) for _ in range(3)] == [4, 6, 8]


@pytest.mark.parametrize("bad", [[4], [-1]])
@pytest.mark.parametrize(
    "layer",
    [
        lambda x, ids: layers.gather(x, ids),
        lambda x, ids: layers.scatter(x, ids, layers.fill_constant([1, 3], "float32", 1.0)),
        lambda x, ids: layers.one_hot(layers.reshape(ids, [-1, 1]), 4),
        lambda x, ids: layers.gather_nd(x, layers.reshape(ids, [-1, 1])),
        lambda x, ids: layers.scatter_nd(layers.reshape(ids, [-1, 1]), layers.zeros([1, 3], "float32"), [4, 3]),
        lambda x, ids: layers.shard_index(ids, index_num=4, nshards=2, shard_id=0),
        lambda x, ids: layers.multiplex([x, x, x, x], layers.expand(layers.reshape(ids, [-1, 1]), [4, 1])),
    ],
    ids=["gather", "scatter", "one_hot", "gather_nd", "scatter_nd", "shard_index", "multiplex"],
)
def test_an_index_out_of_range_is_an_error(layer, bad):
    out = layer(data("x", [4, 3]), data("ids", [1], "int64"))
    with pytest.raises(OpError, match=r"not in \[0, 4\)"):
        run(out, x=np.zeros((4, 3), "float32"), ids=np.array(bad))


def test_each_column_of_a_place_has_its_own_bound():
    x, places = data("x", [4, 2]), data("places", [1, 2], "int64")
    out = layers.gather_nd(x, places)
    given = np.arange(8, dtype="float32").reshape(4, 2)

    assert run(out, x=given, places=np.array([[3, 1]]))[0] == [7]
    with pytest.raises(OpError, match=r"not in \[0, 2\)"):
        run(out, x=given, places=np.array([[1, 3]]))


def test_nothing_has_extremes_and_slices_as_in_real_fluid():
    x = data("x", [0, 3])
    found = run(
        layers.reduce_max(x), layers.reduce_min(x), layers.slice(x, [0], [0], [1]), x=np.ones((0, 3), "float32")
    )
    assert (found[0].tolist(), found[1].tolist(), found[2].shape) == ([-np.inf], [np.inf], (0, 3))


def test_a_mask_of_unsigned_bytes_is_inverted():
    mask = data("mask", [3], "uint8")
    (found,) = run(1 - mask, mask=np.array([0, 1, 1], "uint8"))
    assert found.dtype == np.uint8 and found.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("rest", "named", "padding"), [((), {}, 0), ((), {"padding_value": 7}, 7), ((7,), {}, 7), ((7, "decoded"), {}, 7)]
)
def test_lengths_come_third_to_a_ctc_decoder_as_in_later_versions_of_fluid(rest, named, padding):
    frames, lengths = data("frames", [2, 3, 3]), data("lengths", [2, 1], "int64")
    out = layers.ctc_greedy_decoder(frames, 2, lengths, *rest, **named)
    given = np.array([[[0, 0, 1], [0, 1, 0], [0, 0, 1]]] * 2, "float32")
    rows, counts = run(*out, frames=given, lengths=np.array([[1], [3]]))
    assert rows.tolist() == [[padding] * 3, [1, padding, padding]] and counts.tolist() == [[0], [1]]


REFUSED = {
    "reshape: at most one dim": lambda x: layers.reshape(x, [-1, -1]),
    "reshape: dim 2 of shape .* is 0": lambda x: layers.reshape(x, [2, 3, 0]),
    "reshape: dim 0 .* must be positive": lambda x: layers.reshape(x, [-2, 3]),
    "at least one dim": lambda x: layers.reshape(x, []),
    "do not fill shape": lambda x: layers.reshape(x, [4, 2]),
    "transpose: perm .* must contain each": lambda x: layers.transpose(x, [0]),
    "transpose: perm .* contains dim 5": lambda x: layers.transpose(x, [0, 5]),
    "is not an order of the 2 dims": lambda x: layers.transpose(x, [0, 0]),
    "squeeze: axes must be list": lambda x: layers.squeeze(x, 1),
    "axis 5 is not an axis of shape": lambda x: layers.squeeze(x, [5]),
    "axis 5 is no place": lambda x: layers.unsqueeze(x, [5]),
    "flatten: axis must be an integer from 0 to 2": lambda x: layers.flatten(x, 3),
    "concat: input is an empty list": lambda x: layers.concat([]),
    "concat: input must be Variable": lambda x: layers.concat([x, 3]),
    "cannot join shapes .* along axis 0": lambda x: layers.concat([x, layers.transpose(x, [1, 0])]),
    "the ranks differ": lambda x: layers.concat([x, layers.reshape(x, [-1])]),
    "split: num_or_sections must be at least 2": lambda x: layers.split(x, 1),
    "split: a dim of size 3 is not divisible into 2 equal": lambda x: layers.split(x, 2, dim=1),
    "split: a dim of size 2 cannot be split into 3 parts": lambda x: layers.split(x, [1, 1, 1], dim=0),
    "split: at most one section": lambda x: layers.split(x, [-1, -1]),
    "do not make up a dim of 3": lambda x: layers.split(x, [1, 1]),
    "unstack: dim 0 .* is unknown": lambda x: layers.unstack(data("y", [-1, 2])),
    "num is 3, but X has 2 slices": lambda x: layers.unstack(x, 0, 3),
    "expand: expand_times .* must be positive": lambda x: layers.expand(x, [0, 1]),
    "must have one number for each of the dims": lambda x: layers.expand(x, [2]),
    "cannot give shape": lambda x: layers.expand_as(x, layers.reshape(x, [3, 2])),
    "slice: starts .* must have one number per axis": lambda x: layers.slice(x, [0, 1], [0], [1, 1]),
    "nothing of a dim of 2": lambda x: layers.slice(x, [0], [1], [1]),
    "a stride must not be 0": lambda x: layers.strided_slice(x, [0], [0], [2], [0]),
    "does not fit into shape": lambda x: layers.crop(x, [2, 2], [0, 2]),
    "crop_tensor: offsets .* must not be negative": lambda x: layers.crop_tensor(x, [1, 1], [-1, 0]),
    "crop_tensor: the dims of shape .* must be positive or -1": lambda x: layers.crop_tensor(x, [0, 1]),
    "paddings .* must be two numbers for each": lambda x: layers.pad(x, [1, 1]),
    "Y of shape .* does not fit into the shape of X": lambda x: layers.pad_constant_like(
        x, layers.pad(x, [1, 0, 0, 0])
    ),
    "pad2d: mode must be": lambda x: layers.pad2d(data("i", [1, 1, 2, 2]), mode="wrap"),
    "a reflection cannot be wider": lambda x: layers.pad2d(data("i", [1, 1, 2, 2]), [2, 0, 0, 0], "reflect"),
    "X must have 4 dims": lambda x: layers.pad2d(x, [1, 1, 1, 1]),
    "unfold: x must be images": lambda x: layers.unfold(x, 2),
    "unfold: kernel_sizes must be a number or 2": lambda x: layers.unfold(data("i", [1, 1, 2, 2]), [1, 2, 3]),
    "a window of .* does not fit": lambda x: layers.unfold(data("i", [1, 1, 2, 2]), 3),
    "gather: index must be int32 or int64, not float32": lambda x: layers.gather(x, x),
    "Index must be a vector": lambda x: layers.gather(x, data("i", [2, 2], "int64")),
    "Index has 3 numbers a place": lambda x: layers.gather_nd(x, data("i", [2, 3], "int64")),
    "scatter_nd_add: ref is FP32, but updates are INT64": lambda x: layers.scatter_nd_add(
        x, data("i", [2, 1], "int64"), data("u", [2, 3], "int64")
    ),
    "multiplex: inputs must hold at least two": lambda x: layers.multiplex([x], data("i", [2, 1], "int32")),
    "the last dim of X must be 1": lambda x: layers.one_hot(data("i", [2, 2], "int64"), 3),
    "depth is 0": lambda x: layers.one_hot(data("i", [2, 1], "int64"), 0),
    "shard_index: shard_id 2": lambda x: layers.shard_index(data("i", [2, 1], "int64"), 10, 2, 2),
    "X must be integer rows": lambda x: layers.hash(data("i", [2], "int64"), 10),
    "k is 4, but the last dim of X has 3": lambda x: layers.topk(x, 4),
    "unique: x must be a vector": lambda x: layers.unique(x),
    "unique: dtype must be int32 or int64": lambda x: layers.unique(layers.reshape(x, [-1]), "float32"),
    "assign: input must be Variable or ndarray": lambda x: layers.assign([1, 2]),
    "assign: an array must be bool": lambda x: layers.assign(np.zeros(2)),
    "fill_constant: out has dtype FP32": lambda x: layers.fill_constant([1], "int64", 1, out=x),
    "fill_constant: shape must have at least one": lambda x: layers.fill_constant([], "int64", 1),
    "fill_constant: a shape must be int32 or int64": lambda x: layers.fill_constant([x], "int64", 1),
    "has a dim that is not known": lambda x: layers.fill_constant([-1, 2], "int64", 1),
    "ones: the dims of shape": lambda x: layers.ones([0], "int64"),
    "Diagonal must be a vector": lambda x: layers.diag(x),
    "eye: .* must be non-negative integers": lambda x: layers.eye(-1),
    "eye: batch_shape must be": lambda x: layers.eye(2, batch_shape=(2,)),
    "tril: input must have at least 2 dims": lambda x: layers.tril(layers.reshape(x, [-1])),
    "is_empty: cond must be bool": lambda x: layers.is_empty(x, cond=x),
    "X counts one thing": lambda x: layers.increment(x),
    "data: shape must be list or tuple": lambda x: fluid.data("z", 3),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_mistakes_are_explained_while_building(problem):
    with pytest.raises((ValueError, TypeError), match=problem):
        REFUSED[problem](data("x", [2, 3]))


def test_mistakes_in_fed_shapes_are_explained_while_running():
    x, shape = data("x", [2, 3]), data("shape", [2], "int32")
    out = layers.reshape(x, shape)
    with pytest.raises(OpError, match="do not fill shape"):
        run(out, x=np.zeros((2, 3), "float32"), shape=np.array([4, 2], "int32"))


# Real Fluid refuses these too: as many axes as bounds, and no result without elements.
@pytest.mark.parametrize(
    "axes, starts, ends",
    [([0], [0, 1], [1, 2]), ([0, 1], [1], [2]), ([1], [2], [1]), ([1], [3], [9]), ([1], [5], [9])],
)
def test_a_slice_needs_bounds_for_each_axis_and_some_elements(axes, starts, ends):
    x = data("x", [2, 3, 4])
    with pytest.raises((OpError, ValueError), match="slice"):
        layers.slice(x, axes, starts, ends)
    with pytest.raises((OpError, ValueError), match="slice"):
        layers.strided_slice(x, axes, starts, ends, [1] * len(starts))


def test_a_range_that_runs_away_from_its_end_is_an_error():
    out = layers.range(data("start", [1]), 0.0, 1.0, "float32")
    with pytest.raises(OpError, match="does not reach"):
        run(out, start=np.array([5], "float32"))


def test_linspace_needs_a_number_at_least():
    out = layers.linspace(data("start", [1]), 1.0, 0, "float32")
    with pytest.raises(OpError, match="Num is 0"):
        run(out, start=np.array([5], "float32"))
