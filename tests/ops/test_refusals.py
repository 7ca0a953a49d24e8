"""Inputs and attributes that JAX would make something of, by broadcasting for example, and that Fluid refuses."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OpError

FLOATS, IDS = np.float32, np.int64

# Op type; inputs by slot, as (shape, dtype) or a list of them; an output; attributes; what the message says.
REFUSED = [
    ("accuracy", {"Out": ((4, 1), FLOATS), "Indices": ((4, 1), IDS), "Label": ((1, 1), IDS)}, "Accuracy", {}, "4 rows"),
    (
        "auc",
        {"Predict": ((4, 2), FLOATS), "Label": ((1, 1), IDS), "StatPos": ((1, 11), IDS), "StatNeg": ((1, 11), IDS)},
        "AUC",
        {"num_thresholds": 10, "slide_steps": 0},
        "Label must have one element for each of 4 rows",
    ),
    (
        "precision_recall",
        {"MaxProbs": ((4, 1), FLOATS), "Indices": ((4, 1), np.int32), "Labels": ((1, 1), np.int32)},
        "BatchMetrics",
        {"class_number": 3},
        "4 rows",
    ),
    (
        "positive_negative_pair",
        {"Score": ((4, 1), FLOATS), "Label": ((1, 1), FLOATS), "QueryID": ((4, 1), IDS)},
        "PositivePair",
        {"column": 0},
        "4 rows",
    ),
    ("scatter", {"X": ((4, 3), FLOATS), "Ids": ((2,), IDS), "Updates": ((1, 3), FLOATS)}, "Out", {}, r"\[2, 3\]"),
    ("scatter", {"X": ((4, 3), FLOATS), "Ids": ((2,), IDS), "Updates": ((2, 1), FLOATS)}, "Out", {}, r"\[2, 3\]"),
    (
        "scatter_nd_add",
        {"X": ((4, 3), FLOATS), "Index": ((2, 1), IDS), "Updates": ((1, 3), FLOATS)},
        "Out",
        {},
        r"Updates must have the shape \[2, 3\], not \[1, 3\]",
    ),
    ("index_sample", {"X": ((4, 3), FLOATS), "Index": ((1, 2), IDS)}, "Out", {}, "number of rows"),
    ("conv_shift", {"X": ((4, 3), FLOATS), "Y": ((1, 3), FLOATS)}, "Out", {}, "number of rows"),
    ("lstm_unit", {"X": ((4, 12), FLOATS), "C_prev": ((1, 3), FLOATS)}, "C", {}, "number of rows"),
    ("lrn", {"X": ((2, 4, 3, 3), FLOATS)}, "Out", {"n": 4}, "n must be odd, not 4"),
    ("cross", {"X": ((2, 4), FLOATS), "Y": ((2, 4), FLOATS)}, "Out", {"dim": 0}, "no vectors of size 3 along 0"),
    ("cross", {"X": ((2, 4), FLOATS), "Y": ((2, 4), FLOATS)}, "Out", {}, "no vectors of size 3"),
    ("cumsum", {"X": ((2, 3), FLOATS)}, "Out", {"axis": 2}, "axis 2 is not an axis of a tensor with 2 dims"),
    ("clip", {"X": ((2, 3), FLOATS)}, "Out", {"min": 2.0, "max": 1.0}, "min 2.0 is larger than max 1.0"),
    ("uniform_random", {}, "Out", {"shape": [2], "min": 2.0, "max": 1.0}, "min 2.0 is larger than max 1.0"),
    ("expand", {"X": ((2, 3), FLOATS)}, "Out", {"expand_times": [0, 1]}, "at least 1"),
    ("concat", {"X": [((2, 3), FLOATS), ((2, 3), np.float64)]}, "Out", {"axis": 0}, "the same dtype; cast them"),
    ("stack", {"X": [((2, 3), FLOATS), ((2, 3), IDS)]}, "Y", {"axis": 0}, "the same dtype; cast them"),
]


@pytest.mark.parametrize(
    ("type", "inputs", "output", "attrs", "message"), REFUSED, ids=[f"{case[0]}-{i}" for i, case in enumerate(REFUSED)]
)
def test_what_fluid_refuses_is_refused(type, inputs, output, attrs, message):
    block = fluid.default_main_program().global_block()
    variables, feed = {}, {}
    for slot, given in inputs.items():
        variables[slot] = []
        for shape, dtype in given if isinstance(given, list) else [given]:
            name = f"{slot}_{len(variables[slot])}"
            feed[name] = np.ones(shape, dtype)
            variables[slot].append(block.create_var(name=name, shape=shape, dtype=np.dtype(dtype).name))
    out = block.create_var(name="out", dtype="float32")
    with pytest.raises(OpError, match=message):
        block.append_op(type=type, inputs=variables, outputs={output: [out]}, attrs=attrs)
        fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
