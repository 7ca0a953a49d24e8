"""Arrays of tensors: lists of values, each of its own shape.

An index decides how long a list is, so it must be known while tracing; a counter that starts as a constant is.
Writing gives a new list: the array as it was comes in through ``Array``, a slot real Fluid does without.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from refluid.ops.infer import Described, ShapeDtype
from refluid.ops.registry import op


def _like_x(inputs: Described, attrs: dict) -> Described:
    return {"Out": inputs["X"][:1]}


@op(
    "write_to_array",
    inputs="X I Array?",
    outputs="Out",
    static="I",
    differentiable="X Array",
    lod="aware",
    infer=_like_x,
)
def write_to_array(x, i, array=None):
    """The array with x at position i; positions left out before it hold zeros."""
    index = _position(i)
    written = list(array or ())
    written += [jax.tree.map(jnp.zeros_like, x)] * (index + 1 - len(written))
    written[index] = x
    return written


@op(
    "read_from_array",
    inputs="X I X_W?",
    outputs="Out",
    static="I",
    differentiable="X",
    lod="aware",
    infer=_like_x,
)
def read_from_array(x, i, x_w=None):
    """What the array holds at position i."""
    index = _position(i)
    if x is None or index >= len(x):
        raise ValueError(f"position {index} is read, but the array holds {len(x or ())} tensors")
    return x[index]


def _position(i) -> int:
    if np.size(i) != 1:
        raise ValueError(f"I is one position; it has shape {list(np.shape(i))}")
    index = int(np.reshape(i, ()))
    if index < 0:
        raise ValueError(f"positions count from 0, not {index}")
    return index


def _one_count(inputs: Described, attrs: dict) -> Described:
    return {"Out": [ShapeDtype((1,), np.dtype("int64"))]}


@op("lod_array_length", inputs="X", outputs="Out", grad=None, constant=True, lod="aware", infer=_one_count)
def lod_array_length(x):
    """How many tensors the array holds."""
    return jnp.asarray([len(x or ())], jnp.int64)
