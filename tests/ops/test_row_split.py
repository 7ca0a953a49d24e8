"""Rows parted by a mask and put together again, in the form that inference programs have."""

import numpy as np

from refluid.ops import registry


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
