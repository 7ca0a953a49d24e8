"""Layers on sequences of ids that stand for text: reading them out of CTC's frames, and comparing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.building.single_op import require_integer
from refluid.ir import Variable

__all__ = ["ctc_greedy_decoder", "edit_distance"]


def ctc_greedy_decoder(
    input: Variable,
    blank: int,
    name: str | None = None,
    input_length: Variable | None = None,
    padding_value: int = 0,
) -> Any:
    """The most probable class of each frame, without blanks and repetitions.

    Args:
      input_length: for a batch [batch, length, classes] instead of sequences; then lengths are returned as well.
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
    """How many ids must be put in, taken out or replaced to get from each input to its label; and how many pairs.

    Args:
      normalized: divide by the length of the label.
      ignored_tokens: ids that are taken out first.
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
