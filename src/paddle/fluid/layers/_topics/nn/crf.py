"""Sequence labeling: conditional random fields and chunk evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_outputs, append_single_op, require_floating
from paddle.fluid.param_attr import ParamAttr
from refluid.ir import Variable

__all__ = ["chunk_eval", "crf_decoding", "linear_chain_crf"]

_SCHEMES = ("IOB", "IOE", "IOBES", "plain")


def linear_chain_crf(
    input: Variable, label: Variable, param_attr: Any = None, length: Variable | None = None
) -> Variable:
    """Computes the negative log likelihood of a linear-chain conditional random field for each sequence.

    Args:
      input: the score of every tag at every step: packed sequences, or [sequences, steps, tags] with ``length``.
      label: the true tags.
      param_attr: for the transition weights [tags + 2, tags]; name it to share them with `crf_decoding`.
      length: the lengths of padded sequences.
    """
    require_floating("linear_chain_crf", input=input)
    check_variable_and_dtype(label, "label", ("int64",), "linear_chain_crf")
    helper = LayerHelper("linear_chain_crf", input=input, param_attr=param_attr)
    dtype = helper.input_dtype()
    tags = input.shape[1] if length is None else input.shape[2]
    transition = helper.create_parameter(attr=helper.param_attr, shape=[tags + 2, tags], dtype=dtype)
    slots = ("Alpha", "EmissionExps", "TransitionExps", "LogLikelihood")
    inputs = {"Emission": input, "Transition": transition, "Label": label, "Length": length}
    return append_outputs(helper, inputs, dict.fromkeys(slots, dtype))["LogLikelihood"]


def crf_decoding(
    input: Variable, param_attr: Any, label: Variable | None = None, length: Variable | None = None
) -> Variable:
    """Decodes the best tags with the weights of a `linear_chain_crf`; with ``label``, returns 1 where they match it.

    Args:
      param_attr: the name of the transition weights.
    """
    require_floating("crf_decoding", input=input)
    helper = LayerHelper("crf_decoding", input=input)
    name = param_attr.name if isinstance(param_attr, ParamAttr) else param_attr
    if not isinstance(name, str):
        raise ValueError("crf_decoding: param_attr must name the transition weights of the linear_chain_crf")
    inputs = {"Emission": input, "Transition": helper.get_parameter(name), "Label": label, "Length": length}
    return append_outputs(helper, inputs, {"ViterbiPath": "int64"})["ViterbiPath"]


def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Sequence[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, ...]:
    """Computes precision, recall and F1 of chunks, and the counts of predicted, labeled and correct chunks.

    Args:
      chunk_scheme: IOB, IOE, IOBES or plain.
      excluded_chunk_types: chunk types to ignore.
      seq_length: the lengths of padded sequences.
    """
    check_variable_and_dtype(input, "input", ("int64",), "chunk_eval")
    check_variable_and_dtype(label, "label", ("int64",), "chunk_eval")
    if chunk_scheme not in _SCHEMES:
        raise ValueError(f"chunk_eval: chunk_scheme must be one of {', '.join(_SCHEMES)}, not {chunk_scheme!r}")
    ratios, counts = ("Precision", "Recall", "F1-Score"), ("NumInferChunks", "NumLabelChunks", "NumCorrectChunks")
    outputs = {**dict.fromkeys(ratios, "float32"), **dict.fromkeys(counts, "int64")}
    attrs = {
        "num_chunk_types": num_chunk_types,
        "chunk_scheme": chunk_scheme,
        "excluded_chunk_types": list(excluded_chunk_types or ()),
    }
    inputs = {"Inference": input, "Label": label, "SeqLength": seq_length}
    return tuple(append_single_op("chunk_eval", inputs, outputs, attrs).values())
