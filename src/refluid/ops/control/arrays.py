"""Arrays of tensors: lists of values of any shapes; `Steps` or `Stacked` if their number depends on values.

An index determines the length of a list, so it must be known while tracing, as is a counter that starts as a constant.
Writing returns a new list; the previous array is read through ``Array``, a slot that real Fluid does not have.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from refluid.ops.control.stacked import Outline, Stacked
from refluid.ops.control.steps import Steps, as_list, length_of
from refluid.ops.core.checks import require
from refluid.ops.core.infer import Described, ShapeDtype, described_like
from refluid.ops.core.registry import op
from refluid.ops.core.values import plain
from refluid.ops.sequence.nested import without_padding

_like_x = described_like("X")


@op(
    "write_to_array",
    inputs="X I Array?",
    outputs="Out",
    static="I",
    differentiable="X Array",
    lod="aware",
    infer=_like_x,
    overwrites="Array:Out",
)
def write_to_array(x, i, array=None):
    """The array with x at position i; skipped positions before it hold zeros."""
    if isinstance(array, Stacked | Outline):
        return array.with_tensor(x, _traced_position(i, array))
    index = _position(i)
    written = as_list(array)
    written += [jax.tree.map(jnp.zeros_like, x)] * (index + 1 - len(written))
    written[index] = x
    return written


@op("read_from_array", inputs="X I X_W?", outputs="Out", static="I", differentiable="X", lod="aware", infer=_like_x)
def read_from_array(x, i, x_w=None):
    """The tensor at position i of the array."""
    if isinstance(x, Stacked | Outline):
        return x.at(_traced_position(i, x))
    if isinstance(x, Steps):
        return x.at(plain(i).reshape(()) if isinstance(i, Tracer) else _position(i))
    index = _position(i)
    if x is None or index >= len(x):
        raise ValueError(f"position {index} is read, but the array holds {len(x or ())} tensors")
    return x[index]


def _traced_position(i, array: Any) -> Any:
    if not isinstance(i, Tracer):
        return _position(i)
    position = i.reshape(())
    if isinstance(array, Stacked):
        require(position < array.slots, f"the array has room for {array.slots} tensors only")
    return position


def _position(i) -> int:
    if np.size(i) != 1:
        raise ValueError(f"I is one position; it has shape {list(np.shape(i))}")
    index = int(np.reshape(i, ()))
    if index < 0:
        raise ValueError(f"positions count from 0, not {index}")
    return index


def one_count(inputs: Described, attrs: dict) -> Described:
    """Inference for an op that returns a count."""
    return {"Out": [ShapeDtype((1,), np.dtype("int64"))]}


@op("lod_array_length", inputs="X", outputs="Out", grad=None, constant="of_list", lod="aware", infer=one_count)
def lod_array_length(x):
    """How many tensors the array holds."""
    return jnp.asarray(length_of(x), jnp.int64).reshape(1)


def _infer_joined(inputs: Described, attrs: dict[str, Any]) -> Described:
    """The number of tensors and their sizes along the axis are not known."""
    x, axis = inputs["X"][0], attrs.get("axis", 0)
    rank = len(x.shape) + bool(attrs.get("use_stack"))
    shape = list(x.shape)
    if attrs.get("use_stack"):
        shape.insert(axis % rank, -1)
    elif shape:
        shape[axis % rank] = -1
    return {"Out": [ShapeDtype(tuple(shape), x.dtype)]}


@op("tensor_array_to_tensor", inputs="X", outputs="Out OutIndex", lod="aware", infer=_infer_joined, host="array_sizes")
def tensor_array_to_tensor(x, *, axis=0, use_stack=False):
    """The tensors of an array, concatenated or stacked along an axis, and their sizes along that axis."""
    tensors = [plain(without_padding(each)) for each in as_list(x)]
    if not tensors:
        raise ValueError("the array holds no tensors")
    sizes = jnp.asarray([each.shape[axis % each.ndim] for each in tensors], jnp.int32)
    return (jnp.stack if use_stack else jnp.concatenate)(tensors, axis), sizes
