"""Products with bias and activation (fc and its repetitions), and pairs of elementwise functions, as one op each."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax.lax import stop_gradient

from refluid.ops.core.registry import lookup, op
from refluid.ops.core.row_wise import broadcast_along_rows, sequences_only_in
from refluid.ops.nn.eight_bits import Scales, is_8_bit
from refluid.ops.tensor.matmul import mul

_PADDING = 4  # rows and columns that are added to the weights of some sizes, for the cache of a CPU


def activate(name: str, x: Any, **attrs: Any) -> Any:
    """The activation op ``name`` of x; no name, or "identity", is x itself."""
    if name in ("", "identity"):
        return x
    return lookup(name).call({"X": [x]}, attrs)["Out"][0]


@op("fc", inputs="Input W Bias?", outputs="Out", grad=None, row_wise=sequences_only_in("Input"), matrix="W")
def fc(
    x,
    w,
    bias=None,
    *,
    in_num_col_dims=1,
    activation_type="",
    padding_weights=False,
    Scale_in=1.0,
    Scale_weights=(1.0,),
    Scale_out=1.0,
    force_fp32_output=False,
):
    """activation(input @ w + bias); padded weights have 4 more rows and columns that do not count."""
    if padding_weights:
        w = w[:-_PADDING, :-_PADDING]
    scales = Scales(Scale_in, Scale_weights, Scale_out, force_fp32_output) if is_8_bit(x) else None
    if scales:
        x, w = x.astype(jnp.float32), scales.of_weight(w, axis=1)
    out = mul(x, w, x_num_col_dims=in_num_col_dims)
    if scales:
        out, bias = scales.of_sums(out), None if bias is None else bias * jnp.float32(scales.output)
    out = activate(activation_type, out if bias is None else out + bias.reshape(-1))
    return out if scales is None else scales.stored(out, activation_type)


@op("fusion_repeated_fc_relu", inputs="X W* Bias*", outputs="ReluOut* Out", grad=None, row_wise=sequences_only_in("X"))
def fusion_repeated_fc_relu(x, weights, biases):
    """Layers of relu(x @ w + bias), one after the other."""
    layers = []
    for w, bias in zip(weights, biases, strict=True):
        layers.append(fc(layers[-1] if layers else x, w, bias, activation_type="relu"))
    return layers[:-1], layers[-1]


@op(
    "fusion_squared_mat_sub",
    inputs="X Y",
    outputs="SquaredX SquaredY SquaredXY Out",
    grad=None,
    lod=None,
    row_wise=sequences_only_in("X"),
)
def fusion_squared_mat_sub(x, y, *, scalar=1.0):
    """scalar * ((x @ y)^2 - x^2 @ y^2): the sum over pairs of features in a factorization machine."""
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError("X and Y must be matrices")
    squared_x, squared_y, squared_xy = jnp.square(x), jnp.square(y), jnp.square(x @ y)
    return squared_x, squared_y, squared_xy, (squared_xy - squared_x @ squared_y) * jnp.asarray(scalar, x.dtype)


_UNARY = ("scale", "relu", "tanh", "sigmoid")
_BINARY = ("elementwise_add", "elementwise_mul")


@op(
    "fused_elemwise_activation",
    inputs="X Y",
    outputs="Out IntermediateOut",
    row_wise=broadcast_along_rows,
)
def fused_elemwise_activation(x, y, *, functor_list, axis=-1, scale=0.0, save_intermediate_out=False):
    """binary(x, unary(y)) or unary(binary(x, y)): the function that is written first is applied last."""
    outer, inner = functor_list
    if outer in _BINARY and inner in _UNARY:
        between = _apply(inner, scale, y)
        out = lookup(outer).rule(x, between, axis=axis)
    elif outer in _UNARY and inner in _BINARY:
        between = lookup(inner).rule(x, y, axis=axis)
        out = _apply(outer, scale, between)
    else:
        raise ValueError(
            f"functor_list must have one of {', '.join(_BINARY)} and one of {', '.join(_UNARY)}, "
            f"not {', '.join(functor_list)}"
        )
    return out, stop_gradient(between) if save_intermediate_out else None


def _apply(name, scale, x):
    return activate(name, x, **({"scale": scale} if name == "scale" else {}))
