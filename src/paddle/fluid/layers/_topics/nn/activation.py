"""Element-wise activations, plus prelu and maxout."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_output, append_single_op, input_or_attr, named_layer
from paddle.fluid.layers._topics.tensor.create import assign
from refluid.ir import Variable
from refluid.ops.core.registry import lookup

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_NUMBERS = (*_FLOATS, "int32", "int64")

_PLAIN = {
    "abs": "the absolute value",
    "acos": "the arc cosine",
    "asin": "the arc sine",
    "atan": "the arc tangent",
    "ceil": "the smallest integer not less than x",
    "cos": "the cosine",
    "erf": "the error function",
    "exp": "the exponential",
    "floor": "the largest integer not greater than x",
    "log": "the natural logarithm",
    "log1p": "log(1 + x)",
    "logsigmoid": "the logarithm of the sigmoid",
    "reciprocal": "1 / x",
    "relu": "max(x, 0)",
    "round": "the nearest integer, with halves rounded away from 0",
    "rsqrt": "1 / sqrt(x)",
    "sigmoid": "1 / (1 + exp(-x))",
    "sign": "the sign of x: -1, 0 or 1",
    "sin": "the sine",
    "softplus": "log(1 + exp(x))",
    "softsign": "x / (1 + |x|)",
    "sqrt": "the square root",
    "square": "x * x",
    "tanh": "the hyperbolic tangent",
    "tanh_shrink": "x - tanh(x)",
}

# Layer -> its attributes, in argument order. None leaves an attribute at the op's default.
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    **{type: {} for type in _PLAIN},
    "brelu": {"t_min": 0.0, "t_max": 24.0},
    "elu": {"alpha": 1.0},
    "gelu": {"approximate": False},
    "hard_shrink": {"threshold": None},
    "hard_sigmoid": {"slope": 0.2, "offset": 0.5},
    "hard_swish": {"threshold": 6.0, "scale": 6.0, "offset": 3.0},
    "leaky_relu": {"alpha": 0.02},
    "mish": {"threshold": 20.0},
    "relu6": {"threshold": 6.0},
    "selu": {"scale": None, "alpha": None},
    "soft_relu": {"threshold": 40.0},
    "stanh": {"scale_a": 2.0 / 3.0, "scale_b": 1.7159},
    "thresholded_relu": {"threshold": None},
}

__all__ = ["maxout", "pow", "prelu", "softshrink", "swish"]
__all__ += list(_ATTRIBUTES)  # pyright: ignore[reportUnsupportedDunderAll]


def _layer(type: str, attributes: dict[str, Any]) -> Callable[..., Variable]:
    arguments = {"x": Parameter.empty, **attributes, "name": None}
    kind = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature([Parameter(name, kind, default=default) for name, default in arguments.items()])
    dtypes = _NUMBERS if type in ("abs", "exp", "square") else _FLOATS

    def layer(*args, **kwargs):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type}: {error}") from None
        bound.apply_defaults()
        given = bound.arguments
        if type == "sign" and isinstance(given["x"], np.ndarray):  # the one activation that takes numbers in Fluid
            given["x"] = assign(given["x"])
        check_variable_and_dtype(given["x"], "x", dtypes, type)
        return _append(type, given["x"], given["name"], {name: given[name] for name in attributes})

    layer.__signature__ = signature  # type: ignore[attr-defined]
    doc = f"Computes {_PLAIN[type]} element-wise." if type in _PLAIN else lookup(type).rule.__doc__
    return named_layer(layer, type, doc)


def _append(type: str, x: Variable, name: str | None, attrs: dict[str, Any], **inputs: Variable) -> Variable:
    return append_single_op(type, {"X": x, **inputs}, {"Out": x.dtype}, attrs, name)["Out"]


def softshrink(x, name=None, alpha=None):
    """Shrinks x towards 0 by ``alpha`` (0.5 by default); smaller magnitudes become 0."""
    if isinstance(name, float | int):  # in Fluid 1.6 and later, alpha comes second
        name, alpha = None, name
    check_variable_and_dtype(x, "x", _FLOATS, "softshrink")
    return _append("softshrink", x, name, {"lambda": alpha})


def swish(x, beta=1.0, name=None):
    """Computes x * sigmoid(x); ``beta`` has no effect, because Fluid's layer does not pass it to its op."""
    check_variable_and_dtype(x, "x", _FLOATS, "swish")
    return _append("swish", x, name, {})


def pow(x, factor=1.0, name=None):
    """Computes x to the power of ``factor``, a number or a variable of one element."""
    check_variable_and_dtype(x, "x", _NUMBERS, "pow")
    inputs, attrs = input_or_attr(factor if isinstance(factor, Variable) else float(factor), "FactorTensor", "factor")
    return _append("pow", x, name, attrs, **inputs)


def prelu(x, mode, param_attr=None, name=None):
    """Computes x where it is positive and a learned multiple of x elsewhere.

    Args:
      mode: "all" learns a single slope, "channel" one per channel, "element" one per element of a sample.
    """
    check_type(x, "x", Variable, "prelu")
    if mode not in ("all", "channel", "element"):
        raise ValueError(f"prelu: mode must be 'all', 'channel' or 'element', not {mode!r}")
    if mode != "all" and len(x.shape) < 2:
        raise ValueError(f"prelu: mode {mode!r} requires an x with at least two dims, got shape {list(x.shape)}")
    shapes = {"all": [1], "channel": [1, *x.shape[1:2], 1, 1], "element": [1, *x.shape[1:]]}
    helper = LayerHelper("prelu", param_attr=param_attr, name=name)
    alpha = helper.create_parameter(
        helper.param_attr, shapes[mode], dtype="float32", default_initializer=Constant(0.25)
    )
    return append_output(helper, {"X": x, "Alpha": alpha}, x.dtype, {"mode": mode})


def maxout(x, groups, name=None, axis=1):
    """Computes the maximum over each group of ``groups`` consecutive channels of an image.

    Args:
      axis: the channel axis: 1, or 3 (or -1) for channels last.
    """
    check_variable_and_dtype(x, "x", _FLOATS, "maxout")
    if axis not in (1, -1, 3):
        raise ValueError(f"maxout: axis must be 1, 3 or -1, not {axis}")
    return _append("maxout", x, name, {"groups": groups, "axis": 3 if axis == -1 else axis})


globals().update({type: _layer(type, attributes) for type, attributes in _ATTRIBUTES.items()})
