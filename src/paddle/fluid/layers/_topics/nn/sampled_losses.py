"""Losses that sample a few of many classes, and sampling of class ids."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.fluid.initializer import NumpyArrayInitializer
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_outputs, append_single_op, require_floating, without_gradient
from paddle.fluid.param_attr import ParamAttr
from refluid.ir import Variable

__all__ = ["hsigmoid", "nce", "sampled_softmax_with_cross_entropy", "sampling_id"]

_SAMPLERS = {"uniform": 0, "log_uniform": 1, "custom_dist": 2}


def nce(
    input: Variable,
    label: Variable,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Sequence[float] | None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Computes the noise-contrastive estimation loss against ``num_neg_samples`` classes drawn by ``sampler``.

    Args:
      label: [batch, number of true classes].
      sampler: uniform, log_uniform, or custom_dist with the probabilities ``custom_dist``.
      is_sparse: produce a sparse weight gradient that holds only the rows of the sampled classes.
    """
    require_floating("nce", input=input)
    if sampler not in _SAMPLERS:
        raise ValueError(f"nce: sampler must be one of {', '.join(_SAMPLERS)}, not {sampler!r}")
    samples = 10 if num_neg_samples is None else int(num_neg_samples)
    helper = LayerHelper("nce", **locals())
    weight = helper.create_parameter(
        attr=helper.param_attr, shape=[num_total_classes, input.shape[1]], dtype=input.dtype
    )
    bias = helper.create_parameter(attr=helper.bias_attr, shape=[num_total_classes, 1], dtype=input.dtype, is_bias=True)
    inputs = {"Input": input, "Label": label, "Weight": weight, "Bias": bias, "SampleWeight": sample_weight}
    if sampler == "custom_dist":
        inputs.update(_custom_distribution(helper, custom_dist, num_total_classes))
    outputs = {"Cost": input.dtype, "SampleLogits": input.dtype, "SampleLabels": label.dtype}
    attrs = {
        "num_total_classes": int(num_total_classes),
        "num_neg_samples": samples,
        "seed": seed,
        "sampler": _SAMPLERS[sampler],
        "is_sparse": is_sparse,
        "remote_prefetch": is_sparse,
    }
    return append_outputs(helper, inputs, outputs, attrs)["Cost"] / (samples + 1)


def _custom_distribution(helper: LayerHelper, distribution: Sequence[float] | None, classes: int) -> dict[str, Any]:
    if distribution is None or len(distribution) != classes:
        raise ValueError(f"nce: with sampler='custom_dist', custom_dist must hold {classes} probabilities")
    alias, stay = _alias_table(np.asarray(distribution, "float64"))
    values = {
        "CustomDistProbs": np.asarray(distribution, "float32"),
        "CustomDistAlias": alias,
        "CustomDistAliasProbs": stay,
    }
    inputs = {}
    for slot, value in values.items():
        table = helper.create_parameter(
            attr=ParamAttr(), shape=value.shape, dtype=value.dtype, default_initializer=NumpyArrayInitializer(value)
        )
        inputs[slot] = without_gradient(table)
    return inputs


def _alias_table(distribution: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Builds Walker's alias table: draw a class uniformly, keep it with probability ``stay``, else take its alias."""
    stay = distribution * len(distribution)
    alias = np.full(len(distribution), -1, "int32")
    poor = [i for i, share in enumerate(stay) if share < 1.0]
    rich = [i for i, share in enumerate(stay) if share > 1.0]
    while poor and rich:
        little, big = poor.pop(0), rich.pop(0)
        alias[little] = big
        stay[big] -= 1.0 - stay[little]
        if stay[big] != 1.0:
            (rich if stay[big] > 1.0 else poor).append(big)
    stay[alias < 0] = 1.0  # classes without an alias are always kept; rounding may leave them below 1
    return alias, stay.astype("float32")


def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """Computes the hierarchical sigmoid loss along the path to the label in a binary tree of the classes.

    Args:
      num_classes: the number of classes, or of inner nodes for a custom tree.
      path_table, path_code: with ``is_custom``, the inner nodes and branches of each sample's path, padded with -1.
      is_sparse: produce a sparse weight gradient that holds only the visited nodes; custom trees only.
    """
    require_floating("hsigmoid", input=input)
    if is_custom and (path_table is None or path_code is None or num_classes is None):
        raise ValueError("hsigmoid: a custom tree requires path_table, path_code and num_classes")
    if not is_custom and (path_table is not None or path_code is not None):
        raise ValueError("hsigmoid: path_table and path_code require is_custom=True")
    if not is_custom and (num_classes is None or num_classes < 2):
        raise ValueError(f"hsigmoid: the default tree requires at least 2 classes, got {num_classes}")
    if is_sparse and not is_custom:
        warnings.warn("hsigmoid: is_sparse is ignored without a custom tree", stacklevel=2)
        is_sparse = False
    helper = LayerHelper("hierarchical_sigmoid", **locals())
    out, steps = (helper.create_variable_for_type_inference(input.dtype) for _ in range(2))
    nodes = num_classes if is_custom else num_classes - 1
    weight = helper.create_parameter(attr=helper.param_attr, shape=[nodes, input.shape[1]], dtype=input.dtype)
    bias = helper.create_parameter(attr=helper.bias_attr, shape=[nodes, 1], dtype=input.dtype, is_bias=True)
    helper.append_op(
        type="hierarchical_sigmoid",
        inputs={
            "X": input,
            "W": weight,
            "Label": label,
            "PathTable": path_table,  # given for custom trees only
            "PathCode": path_code,
            "Bias": bias,
        },
        outputs={"Out": out, "PreOut": steps, "W_Out": weight},
        attrs={"num_classes": num_classes, "is_sparse": is_sparse, "remote_prefetch": is_sparse},
    )
    return out


def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Computes the softmax cross entropy over the label and ``num_samples`` classes drawn log-uniformly.

    Args:
      remove_accidental_hits: ignore sampled classes that equal the label.
      customized_samples, customized_probabilities: with ``use_customized_samples``, the labels and sampled classes, and
        the probability of each.
    """
    require_floating("sampled_softmax_with_cross_entropy", logits=logits)
    if use_customized_samples and (customized_samples is None or customized_probabilities is None):
        raise ValueError(
            "sampled_softmax_with_cross_entropy: use_customized_samples requires customized_samples and "
            "customized_probabilities"
        )
    helper = LayerHelper("sample_logits", logits=logits)
    new = helper.create_variable_for_type_inference
    inputs = {"Logits": logits, "Labels": label}
    if use_customized_samples:
        samples, probabilities = customized_samples, customized_probabilities
        inputs |= {"CustomizedSamples": samples, "CustomizedProbabilities": probabilities}
    else:
        samples, probabilities = new("int64"), new(logits.dtype)
    sampled_logits, sampled_label, one_hot = new(logits.dtype), new("int64"), new(logits.dtype)
    helper.append_op(
        type="sample_logits",
        inputs=inputs,
        outputs={
            "Samples": samples,
            "Probabilities": probabilities,
            "SampledLabels": sampled_label,
            "SampledLogits": sampled_logits,
            "LogitsDim": new(logits.dtype),
            "LabelsDim": new(label.dtype),
        },
        attrs={
            "use_customized_samples": use_customized_samples,
            "uniq": True,
            "remove_accidental_hits": remove_accidental_hits,
            "num_samples": num_samples,
            "seed": seed,
        },
    )
    helper.append_op(
        type="one_hot", inputs={"X": sampled_label}, outputs={"Out": one_hot}, attrs={"depth": num_samples + 1}
    )
    loss, softmax = new(logits.dtype), new(logits.dtype)
    helper.append_op(
        type="softmax_with_cross_entropy",
        inputs={"Logits": sampled_logits, "Label": one_hot},
        outputs={"Softmax": softmax, "Loss": loss},
        attrs={"soft_label": True, "ignore_index": 0, "numeric_stable_mode": False},
    )
    return loss / num_true


def sampling_id(x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: Any = "float32") -> Variable:
    """Samples a class id from each row of probabilities."""
    attrs = {"min": min, "max": max, "seed": seed}
    return append_single_op("sampling_id", {"X": x}, {"Out": dtype}, attrs)["Out"]
