"""Element-wise layers of two tensors."""

from __future__ import annotations

from collections.abc import Callable

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
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
        check_type(x, "x", Variable, type)
        check_type(y, "y", Variable, type)
        helper = LayerHelper(type, act=act, name=name)
        out = helper.create_variable_for_type_inference(x.dtype)
        helper.append_op(type=type, inputs={"X": [x], "Y": [y]}, outputs={"Out": [out]}, attrs={"axis": axis})
        return helper.append_activation(out)

    layer.__name__ = layer.__qualname__ = type
    layer.__doc__ = f"""Computes {meaning} element-wise.

    Args:
      axis: the dim of x that aligns with y's first dim; -1 aligns the last dims.
      act: an activation to apply to the result.
    """
    return layer


globals().update({type: _layer(type, meaning) for type, meaning in _MEANINGS.items()})
