"""Normalization layers."""

from __future__ import annotations

import math
import warnings
from typing import Any

from paddle.fluid.initializer import Constant, Normal
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_output, input_or_attr, require_floating, without_gradient
from paddle.fluid.param_attr import ParamAttr
from refluid.ir import Variable, VarType

__all__ = [
    "affine_channel",
    "batch_norm",
    "data_norm",
    "group_norm",
    "inplace_abn",
    "instance_norm",
    "layer_norm",
    "lrn",
    "spectral_norm",
]


def batch_norm(
    input: Variable,
    act: Any = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = False,
    fuse_with_relu: bool = False,
    use_global_stats: bool = False,
) -> Variable:
    """Normalizes each channel over the batch, then scales and shifts it.

    Args:
      is_test: use the moving averages instead of the batch statistics, without updating them.
      momentum: the decay rate of the moving averages.
      in_place: write the result into ``input``.
      use_global_stats: use the moving averages during training too.
    """
    helper = LayerHelper("batch_norm", **locals())
    averages = (moving_mean_name, moving_variance_name, do_model_average_for_mean_and_var)
    out = None if not in_place else input
    out = _append_batch_norm(
        helper,
        input,
        out,
        data_layout,
        averages,
        momentum,
        {
            "epsilon": epsilon,
            "is_test": is_test,
            "use_mkldnn": False,
            "fuse_with_relu": fuse_with_relu,
            "use_global_stats": use_global_stats,
        },
    )
    return helper.append_activation(out)


def inplace_abn(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """Normalizes like `batch_norm`, activates with ``act`` (identity, leaky_relu or elu), and overwrites its input.

    Args:
      act_alpha: the slope of leaky_relu below 0, or the alpha of elu.
    """
    if act not in (None, "identity", "leaky_relu", "elu"):
        raise ValueError(f"inplace_abn: act must be identity, leaky_relu or elu, not {act}")
    helper = LayerHelper("inplace_abn", **locals())
    averages = (moving_mean_name, moving_variance_name, do_model_average_for_mean_and_var)
    attrs = {
        "epsilon": epsilon,
        "is_test": is_test,
        "use_mkldnn": False,
        "fuse_with_relu": False,
        "use_global_stats": use_global_stats,
        "activation": act,
        "alpha": act_alpha,
    }
    return _append_batch_norm(helper, input, input, data_layout, averages, momentum, attrs)


def _append_batch_norm(
    helper: LayerHelper,
    input: Variable,
    out: Variable | None,
    data_layout: str,
    averaged: tuple[str | None, str | None, bool],
    momentum: float | Variable,
    attrs: dict[str, Any],
) -> Variable:
    layer = helper.layer_type
    require_floating(layer, input=input)
    if helper.kwargs.get("bias_attr") is False:
        raise ValueError(f"{layer}: bias_attr cannot be False")
    dtype = VarType.FP32 if input.dtype == VarType.FP16 else input.dtype
    shape = [_channels(input, data_layout, layer)]
    moving_mean_name, moving_variance_name, do_model_average = averaged
    scale = helper.create_parameter(helper.param_attr, shape, dtype, default_initializer=Constant(1.0))
    bias = helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True)
    averages = []
    for average_name, start in ((moving_mean_name, 0.0), (moving_variance_name, 1.0)):
        attr = ParamAttr(
            name=average_name,
            initializer=Constant(start),
            trainable=False,
            do_model_average=do_model_average,
        )
        averages.append(without_gradient(helper.create_parameter(attr, shape, dtype)))
    mean, variance = averages
    saved = [helper.create_variable_for_type_inference(dtype, stop_gradient=True) for _ in range(2)]
    out = helper.create_variable_for_type_inference(input.dtype) if out is None else out
    rate, decay = input_or_attr(momentum, "MomentumTensor", "momentum")
    helper.append_op(
        type=layer,
        inputs={"X": input, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance, **rate},
        outputs={"Y": out, "MeanOut": mean, "VarianceOut": variance, "SavedMean": saved[0], "SavedVariance": saved[1]},
        attrs={**decay, **attrs, "data_layout": data_layout},
    )
    return out


def _channels(input: Variable, data_layout: str, layer: str) -> int:
    if data_layout not in ("NCHW", "NHWC"):
        raise ValueError(f"{layer}: data_layout must be NCHW or NHWC, not {data_layout}")
    return input.shape[1 if data_layout == "NCHW" else -1]


def instance_norm(
    input: Variable, epsilon: float = 1e-05, param_attr: Any = None, bias_attr: Any = None, name: str | None = None
) -> Variable:
    """Normalizes each channel of each sample, then scales and shifts the channels."""
    require_floating("instance_norm", input=input)
    if bias_attr is False:
        raise ValueError("instance_norm: bias_attr cannot be False")
    helper = LayerHelper("instance_norm", **locals())
    dtype = VarType.FP32 if input.dtype == VarType.FP16 else input.dtype
    shape = [input.shape[1]]
    scale = helper.create_parameter(helper.param_attr, shape, dtype, default_initializer=Constant(1.0))
    bias = helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True)
    mean, variance = (helper.create_variable_for_type_inference(dtype, stop_gradient=True) for _ in range(2))
    out = helper.create_variable_for_type_inference(dtype)
    inputs = {"X": input, "Scale": scale, "Bias": bias}
    outputs = {"Y": out, "SavedMean": mean, "SavedVariance": variance}
    helper.append_op(type="instance_norm", inputs=inputs, outputs=outputs, attrs={"epsilon": epsilon})
    return out


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: Any = None,
    name: str | None = None,
) -> Variable:
    """Normalizes each sample over all dims from ``begin_norm_axis`` on, then scales and shifts it."""
    require_floating("layer_norm", input=input)
    helper = LayerHelper("layer_norm", **locals())
    shape = [math.prod(input.shape[begin_norm_axis:])]
    inputs = {"X": input}
    if scale:
        if param_attr is False:
            raise ValueError("layer_norm: param_attr cannot be False with scale=True")
        inputs["Scale"] = helper.create_parameter(
            helper.param_attr, shape, input.dtype, default_initializer=Constant(1.0)
        )
    elif param_attr:
        warnings.warn("layer_norm: param_attr has no effect with scale=False", stacklevel=2)
    if shift:
        if bias_attr is False:
            raise ValueError("layer_norm: bias_attr cannot be False with shift=True")
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, shape, input.dtype, is_bias=True)
    elif bias_attr:
        warnings.warn("layer_norm: bias_attr has no effect with shift=False", stacklevel=2)
    mean, variance = (helper.create_variable_for_type_inference(input.dtype, stop_gradient=True) for _ in range(2))
    out = helper.create_variable_for_type_inference(input.dtype)
    outputs = {"Y": out, "Mean": mean, "Variance": variance}
    attrs = {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis}
    helper.append_op(type="layer_norm", inputs=inputs, outputs=outputs, attrs=attrs)
    return helper.append_activation(out)


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: Any = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalizes each group of channels of each sample.

    Args:
      param_attr, bias_attr: as in Fluid, there is no scale or bias unless these are given.
    """
    require_floating("group_norm", input=input)
    helper = LayerHelper("group_norm", **locals())
    shape = [_channels(input, data_layout, "group_norm")]
    inputs = {"X": input}
    if param_attr:
        inputs["Scale"] = helper.create_parameter(
            helper.param_attr, shape, input.dtype, default_initializer=Constant(1.0)
        )
    if bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, shape, input.dtype, is_bias=True)
    mean, variance = (helper.create_variable(dtype=input.dtype, stop_gradient=True) for _ in range(2))
    out = helper.create_variable(dtype=input.dtype)
    helper.append_op(
        type="group_norm",
        inputs=inputs,
        outputs={"Y": out, "Mean": mean, "Variance": variance},
        attrs={"epsilon": epsilon, "groups": groups, "data_layout": data_layout},
    )
    return helper.append_activation(out)


def data_norm(
    input: Variable,
    act: Any = None,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = False,
    slot_dim: int = -1,
    sync_stats: bool = False,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
) -> Variable:
    """Normalizes each column by statistics accumulated over all batches.

    Args:
      param_attr: a dict with the initial values: batch_size, batch_sum, batch_square (and scale_w, bias).
      slot_dim: the number of columns per slot; a slot whose first column is 0 is absent and stays 0.
      enable_scale_and_shift: also scale and shift each column by trainable values.
    """
    require_floating("data_norm", input=input)
    helper = LayerHelper("data_norm", **locals())
    shape = [_channels(input, data_layout, "data_norm")]
    given = param_attr if isinstance(param_attr, dict) else {}
    prefix = "dn" if name is None else name

    def parameter(suffix: str, key: str, default: float) -> Variable:
        start = Constant(float(given.get(key, default)))
        return helper.create_parameter(ParamAttr(name=f"{prefix}.{suffix}", initializer=start), shape, input.dtype)

    inputs = {"X": input}
    attrs = {"epsilon": epsilon, "sync_stats": sync_stats, "summary_decay_rate": summary_decay_rate}
    if slot_dim > 0:
        attrs["slot_dim"] = slot_dim
    if enable_scale_and_shift:
        attrs["enable_scale_and_shift"] = True
        inputs["scale_w"] = parameter("scale_w", "scale_w", 1.0)
        inputs["bias"] = parameter("bias", "bias", 0.0)
    sums = {
        "BatchSize": parameter("batch_size", "batch_size", 1e4),
        "BatchSum": parameter("batch_sum", "batch_sum", 0.0),
        "BatchSquareSum": parameter("batch_square_sum", "batch_square", 1e4),
    }
    means, scales = (helper.create_variable(dtype=input.dtype, stop_gradient=True) for _ in range(2))
    out = input if in_place else helper.create_variable(dtype=input.dtype)
    helper.append_op(
        type="data_norm", inputs={**inputs, **sums}, outputs={"Y": out, "Means": means, "Scales": scales}, attrs=attrs
    )
    return helper.append_activation(out)


def spectral_norm(
    weight: Variable, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None
) -> Variable:
    """Divides a weight by its largest singular value.

    Args:
      dim: the dim treated as rows: 0 for fc and conv weights as (out, in, ...), 1 for (in, out, ...).
      power_iters: the number of power iterations.
    """
    require_floating("spectral_norm", weight=weight)
    helper = LayerHelper("spectral_norm", **locals())
    rows = weight.shape[dim]
    inputs = {"Weight": weight}
    for slot, size in (("U", rows), ("V", math.prod(weight.shape) // rows)):
        start = Normal(0.0, 1.0)
        vector = helper.create_parameter(ParamAttr(), [size], weight.dtype, default_initializer=start)
        inputs[slot] = without_gradient(vector)
    out = helper.create_variable(dtype=weight.dtype)
    attrs = {"dim": dim, "power_iters": power_iters, "eps": eps}
    helper.append_op(type="spectral_norm", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Divides each pixel by ``(k + alpha * sum of squares over n adjacent channels) ** beta``."""
    require_floating("lrn", input=input)
    if len(input.shape) != 4:
        raise ValueError(f"lrn requires an input with four dims, got {len(input.shape)}")
    _channels(input, data_format, "lrn")
    helper = LayerHelper("lrn", **locals())
    attrs = {"n": n, "k": k, "alpha": alpha, "beta": beta, "data_format": data_format}
    middle = helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(type="lrn", inputs={"X": input}, outputs={"Out": out, "MidOut": middle}, attrs=attrs)
    return out


def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: Any = None,
) -> Variable:
    """Scales and shifts each channel by the given variables."""
    require_floating("affine_channel", x=x)
    if scale is None or bias is None:
        raise ValueError("affine_channel requires both scale and bias")
    helper = LayerHelper("affine_channel", **locals())
    out = append_output(helper, {"X": x, "Scale": scale, "Bias": bias}, x.dtype, {"data_layout": data_layout})
    return helper.append_activation(out)
