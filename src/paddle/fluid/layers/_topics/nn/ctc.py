"""CTC loss and decoding, and the edit distance between sequences of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_output, append_outputs, append_single_op, require_integer
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
    name: str | Variable | None = None,
    input_length: Variable | int | None = None,
    padding_value: int | str | None = 0,
) -> Any:
    """Takes the most probable class of each frame and removes repetitions and blanks.

    Args:
      name: the name, or, as from Fluid 1.7 on, the first of input_length, padding_value and name.
      input_length: for padded input [batch, length, classes]; the output lengths are then returned too.
    """
    from paddle.fluid import layers

    if isinstance(name, Variable):
        name, input_length, padding_value = _with_the_length_first(name, input_length, padding_value)
    helper = LayerHelper("ctc_greedy_decoder", name=name)
    _, classes = layers.topk(input, k=1)
    attrs = {"merge_repeated": True, "blank": blank}
    if input_length is None:
        return append_outputs(helper, {"Input": classes}, {"Output": "int64"}, attrs, "ctc_align")["Output"]
    inputs = {"Input": layers.squeeze(classes, [2]), "InputLength": input_length}
    outputs = {"Output": "int64", "OutputLength": "int64"}
    made = append_outputs(helper, inputs, outputs, {**attrs, "padding_value": padding_value}, "ctc_align")
    return made["Output"], made["OutputLength"]


def _with_the_length_first(length: Variable, second: Any, third: Any) -> tuple[str | None, Variable, int]:
    """Name, length and padding, of which the length was given where Fluid 1.5 has the name."""
    numbers = [given for given in (second, third) if isinstance(given, int)]
    return third if isinstance(third, str) else None, length, numbers[0] if numbers else 0


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
    if ignored_tokens:
        attrs = {"tokens": list(ignored_tokens)}
        input, label = (append_output(helper, {"X": ids}, "int64", attrs, "sequence_erase") for ids in (input, label))
    inputs = {"Hyps": input, "Refs": label}
    if input_length is not None and label_length is not None:
        inputs.update(HypsLength=input_length, RefsLength=label_length)
    made = append_outputs(helper, inputs, {"Out": "int64", "SequenceNum": "int64"}, {"normalized": normalized})
    return made["Out"], made["SequenceNum"]
