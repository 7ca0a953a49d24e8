"""Reductions, cumulative sums and L2 normalization."""

from __future__ import annotations

from collections.abc import Callable

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layers._topics.core.append import NUMBERS, append_single_op, named_layer
from refluid.ir import Variable

_MEANINGS = {
    "reduce_sum": "the sum",
    "reduce_mean": "the mean",
    "reduce_max": "the maximum",
    "reduce_min": "the minimum",
    "reduce_prod": "the product",
    "reduce_all": "the logical and",
    "reduce_any": "the logical or",
}

# Fluid does not check those of the others.
_DTYPES = {"reduce_sum": NUMBERS, "reduce_mean": NUMBERS, "reduce_all": ("bool",), "reduce_any": ("bool",)}

__all__ = ["cumsum", "l2_normalize", "mean"]
__all__ += list(_MEANINGS)  # pyright: ignore[reportUnsupportedDunderAll]


def _layer(type: str, meaning: str) -> Callable[..., Variable]:
    def layer(input, dim=None, keep_dim=False, name=None):
        check_type(input, "input", Variable, type)
        if type in _DTYPES:
            check_variable_and_dtype(input, "input", _DTYPES[type], type)
        dims = [dim] if isinstance(dim, int) else list(dim or ())
        attrs = {"dim": dims or [0], "keep_dim": keep_dim, "reduce_all": not dims}
        return append_single_op(type, {"X": input}, {"Out": input.dtype}, attrs, name)["Out"]

    doc = f"""Computes {meaning} of elements along ``dim``, an integer or a list; over all dims by default.

    Args:
      keep_dim: keep the reduced dims with size 1.
    """
    return named_layer(layer, type, doc)


def mean(x, name=None):
    """Computes the mean of all elements, in a tensor of shape [1]."""
    check_variable_and_dtype(x, "x", ("float16", "bfloat16", "float32", "float64"), "mean")
    return append_single_op("mean", {"X": x}, {"Out": x.dtype}, name=name)["Out"]


def l2_normalize(x, axis, epsilon=1e-12, name=None):
    """Divides x by its Euclidean norm along ``axis``."""
    check_type(x, "x", Variable, "l2_normalize")
    attrs = {"axis": 0 if len(x.shape) == 1 else 1 if axis is None else axis, "epsilon": epsilon}
    outputs = {"Out": x.dtype, "Norm": x.dtype}
    return append_single_op("l2_normalize", {"X": x}, outputs, attrs, name, op_type="norm")["Out"]


def cumsum(x, axis=None, exclusive=None, reverse=None):
    """Computes cumulative sums along ``axis``, by default the last.

    Args:
      exclusive: exclude each element from its own sum.
      reverse: sum from the end.
    """
    check_type(x, "x", Variable, "cumsum")
    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    return append_single_op("cumsum", {"X": x}, {"Out": x.dtype}, attrs)["Out"]


globals().update({type: _layer(type, meaning) for type, meaning in _MEANINGS.items()})
