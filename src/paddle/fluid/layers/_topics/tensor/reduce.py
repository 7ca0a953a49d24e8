"""Reductions, cumulative sums and L2 normalization."""

from __future__ import annotations

from collections.abc import Callable

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
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

__all__ = ["cumsum", "l2_normalize", "mean"]
__all__ += list(_MEANINGS)  # pyright: ignore[reportUnsupportedDunderAll]


def _layer(type: str, meaning: str) -> Callable[..., Variable]:
    def layer(input, dim=None, keep_dim=False, name=None):
        check_type(input, "input", Variable, type)
        dims = [dim] if isinstance(dim, int) else list(dim or ())
        helper = LayerHelper(type, name=name)
        out = helper.create_variable_for_type_inference(input.dtype)
        helper.append_op(
            type=type,
            inputs={"X": [input]},
            outputs={"Out": [out]},
            attrs={"dim": dims or [0], "keep_dim": keep_dim, "reduce_all": not dims},
        )
        return out

    layer.__name__ = layer.__qualname__ = type
    layer.__doc__ = f"""Computes {meaning} of elements along ``dim``, an integer or a list; over all dims by default.

    Args:
      keep_dim: keep the reduced dims with size 1.
    """
    return layer


def mean(x, name=None):
    """Computes the mean of all elements, in a tensor of shape [1]."""
    check_variable_and_dtype(x, "x", ("float16", "bfloat16", "float32", "float64"), "mean")
    helper = LayerHelper("mean", name=name)
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(type="mean", inputs={"X": [x]}, outputs={"Out": [out]})
    return out


def l2_normalize(x, axis, epsilon=1e-12, name=None):
    """Divides x by its Euclidean norm along ``axis``."""
    check_type(x, "x", Variable, "l2_normalize")
    helper = LayerHelper("l2_normalize", name=name)
    out = helper.create_variable_for_type_inference(x.dtype)
    norm = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(
        type="norm",
        inputs={"X": [x]},
        outputs={"Out": [out], "Norm": [norm]},
        attrs={"axis": 0 if len(x.shape) == 1 else 1 if axis is None else axis, "epsilon": epsilon},
    )
    return out


def cumsum(x, axis=None, exclusive=None, reverse=None):
    """Computes cumulative sums along ``axis``, by default the last.

    Args:
      exclusive: exclude each element from its own sum.
      reverse: sum from the end.
    """
    check_type(x, "x", Variable, "cumsum")
    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    helper = LayerHelper("cumsum")
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(
        type="cumsum",
        inputs={"X": [x]},
        outputs={"Out": [out]},
        attrs={name: value for name, value in attrs.items() if value is not None},
    )
    return out


globals().update({type: _layer(type, meaning) for type, meaning in _MEANINGS.items()})
