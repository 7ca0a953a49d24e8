"""CTC loss and decoding, and the edit distance between sequences of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_single_op, require_integer
from refluid.ir import Variable

__all__ = ["ctc_greedy_decoder", "edit_distance", "warpctc"]


def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    use_cudnn: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """Computes the CTC loss of each sequence.

    Args:
      input: unnormalized logits: packed sequences, or [steps, sequences, classes] with the two lengths.
      label: int32 labels.
      blank: the class that means "no label".
      norm_by_times: divide the gradient, not the loss, by the number of steps.
      use_cudnn: ignored.
    """
    check_variable_and_dtype(input, "input", ("float32",), "warpctc")
    check_variable_and_dtype(label, "label", ("int32",), "warpctc")
    inputs: dict[str, Variable | None] = {"Logits": input, "Label": label}
    if input_length is not None and label_length is not None:
        inputs.update(LogitsLength=input_length, LabelLength=label_length)
    outputs = {"Loss": input.dtype, "WarpCTCGrad": input.dtype}
    return append_single_op("warpctc", inputs, outputs, {"blank": blank, "norm_by_times": norm_by_times})["Loss"]


def ctc_greedy_decoder(
    input: Variable,
    blank: int,
    name: str | None = None,
    input_length: Variable | None = None,
    padding_value: int = 0,
) -> Any:
    """Takes the most probable class of each frame and removes repetitions and blanks.

    Args:
      input_length: for padded input [batch, length, classes]; the output lengths are then returned too.
    """
    from paddle.fluid import layers

    helper = LayerHelper("ctc_greedy_decoder", name=name)
    _, classes = layers.topk(input, k=1)
    out = helper.create_variable_for_type_inference("int64")
    attrs = {"merge_repeated": True, "blank": blank}
    if input_length is None:
        helper.append_op(type="ctc_align", inputs={"Input": [classes]}, outputs={"Output": [out]}, attrs=attrs)
        return out
    lengths = helper.create_variable_for_type_inference("int64")
    helper.append_op(
        type="ctc_align",
        inputs={"Input": [layers.squeeze(classes, [2])], "InputLength": [input_length]},
        outputs={"Output": [out], "OutputLength": [lengths]},
        attrs={**attrs, "padding_value": padding_value},
    )
    return out, lengths


def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: Sequence[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """Computes the edit distance between each input and its label; also returns the number of pairs.

    Args:
      normalized: divide by the length of the label.
      ignored_tokens: ids to remove first.
    """
    require_integer("edit_distance", input=input, label=label)
    helper = LayerHelper("edit_distance", input=input)

    def fresh() -> Variable:
        return helper.create_variable_for_type_inference("int64")

    if ignored_tokens:
        pairs = [(ids, fresh()) for ids in (input, label)]
        for ids, erased in pairs:
            attrs = {"tokens": list(ignored_tokens)}
            helper.append_op(type="sequence_erase", inputs={"X": [ids]}, outputs={"Out": [erased]}, attrs=attrs)
        input, label = (erased for _, erased in pairs)
    inputs = {"Hyps": [input], "Refs": [label]}
    if input_length is not None and label_length is not None:
        inputs.update(HypsLength=[input_length], RefsLength=[label_length])
    out, count = fresh(), fresh()
    helper.append_op(
        type="edit_distance",
        inputs=inputs,
        outputs={"Out": [out], "SequenceNum": [count]},
        attrs={"normalized": normalized},
    )
    return out, count
