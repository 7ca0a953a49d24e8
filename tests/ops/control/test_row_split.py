"""Rows parted by a mask and put together again: as inference programs do it, and where real Fluid gives up."""

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.ops.core import registry


def test_inference_merges_rows_as_training_does():
    mask = np.array([[True], [False], [True]])
    arguments = {
        "X": [np.zeros((3, 2), np.float32)],
        "Mask": [mask],
        "InTrue": [np.array([[1, 2], [5, 6]], np.float32)],
        "InFalse": [np.array([[3, 4]], np.float32)],
    }
    (merged,) = registry.lookup("merge_lod_tensor_infer").call(arguments, {"level": 0})["Out"]
    (trained,) = registry.lookup("merge_lod_tensor").call(arguments, {"level": 0})["Out"]

    np.testing.assert_array_equal(merged, [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(merged, trained)


@pytest.mark.parametrize("lengths", [[[3, 0, 2, 0]], [[2, 0, 1, 1], [1, 2, 0, 2]]])
@pytest.mark.parametrize("mask", [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]])
def test_sequences_parted_by_a_mask_come_together_again(lengths, mask):
    parts = fluid.layers.control_flow
    x = fluid.layers.data("x", [2], lod_level=len(lengths), stop_gradient=False)
    chosen = fluid.layers.data("chosen", [1], dtype="bool")
    true, false = parts.split_lod_tensor(x, chosen)
    merged = parts.merge_lod_tensor(fluid.layers.scale(true, 2.0), fluid.layers.scale(false, 3.0), x, chosen)
    (gradient,) = fluid.gradients([fluid.layers.reduce_sum(merged)], [x])
    rows = np.arange(10, dtype="float32").reshape(5, 2)
    feed = {
        "x": fluid.create_lod_tensor(rows, lengths, fluid.CPUPlace()),
        "chosen": np.array(mask, bool).reshape(-1, 1),
    }
    found = fluid.Executor().run(feed=feed, fetch_list=[merged, gradient, true], return_numpy=False)
    of_rows = np.repeat(mask, lengths[0])
    of_rows = np.repeat(of_rows, lengths[1]) if len(lengths) > 1 else of_rows
    weights = np.where(of_rows, 2.0, 3.0)[:, None].astype("float32")
    np.testing.assert_array_equal(np.array(found[0]), rows * weights)
    assert found[0].recursive_sequence_lengths() == lengths
    np.testing.assert_array_equal(np.array(found[1]), np.broadcast_to(weights, rows.shape))
    np.testing.assert_array_equal(np.array(found[2]), rows[of_rows.astype(bool)])


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "uint8"])
def test_a_mask_is_bool(dtype):
    arguments = {"X": [np.zeros((3, 2), np.float32)], "Mask": [np.ones((3, 1), dtype)]}
    with pytest.raises(TypeError, match=f"Mask must be bool, not {dtype}"):
        registry.lookup("split_lod_tensor").call(arguments, {"level": 0})
