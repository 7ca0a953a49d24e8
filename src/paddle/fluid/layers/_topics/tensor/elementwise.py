"""Element-wise layers of two tensors."""

from __future__ import annotations

from collections.abc import Callable

from paddle.fluid.data_feeder import check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import NUMBERS, append_output, named_layer
from refluid.ir import Variable

_MEANINGS = {
    "elementwise_add": "x + y",
    "elementwise_sub": "x - y",
    "elementwise_mul": "x * y",
    "elementwise_div": "x / y",
    "elementwise_max": "max(x, y)",
    "elementwise_min": "min(x, y)",
    "elementwise_pow": "x to the power of y",
    "elementwise_mod": "the remainder of x / y",
    "elementwise_floordiv": "x // y",
}

__all__ = list(_MEANINGS)  # pyright: ignore[reportUnsupportedDunderAll]


def _layer(type: str, meaning: str) -> Callable[..., Variable]:
    def layer(x, y, axis=-1, act=None, name=None):
        check_variable_and_dtype(x, "x", NUMBERS, type)
        check_variable_and_dtype(y, "y", NUMBERS, type)
        helper = LayerHelper(type, act=act, name=name)
        return helper.append_activation(append_output(helper, {"X": x, "Y": y}, x.dtype, {"axis": axis}))

    doc = f"""Computes {meaning} element-wise.

    Args:
      axis: the dim of x that aligns with y's first dim; -1 aligns the last dims.
      act: an activation to apply to the result.
    """
    return named_layer(layer, type, doc)


globals().update({type: _layer(type, meaning) for type, meaning in _MEANINGS.items()})
