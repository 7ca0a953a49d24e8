"""detection_map: how good detections are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable

__all__ = ["detection_map"]


def detection_map(
    detect_res: Variable,
    label: Variable,
    class_num: int,
    background_label: int = 0,
    overlap_threshold: float = 0.3,
    evaluate_difficult: bool = True,
    has_state: Variable | None = None,
    input_states: Sequence[Variable] | None = None,
    out_states: Sequence[Variable] | None = None,
    ap_version: str = "integral",
) -> Variable:
    """Computes the mean average precision of detections; `fluid.metrics.DetectionMAP` is easier to use.

    Args:
      detect_res: rows of class, score and box, a sequence for each image.
      label: rows of class, 1 if the object is difficult (may be left out), and box, a sequence for each image.
      class_num: the number of classes, including the background.
      overlap_threshold: how much a detection must overlap with an object to find it.
      evaluate_difficult: whether difficult objects count.
      has_state: 1 if input_states hold the detections of batches before, else 0.
      input_states, out_states: the number of objects of each class, and the right and the wrong detections.
      ap_version: integral or 11point.

    Returns:
      the mean over classes, of shape [1].
    """
    helper = LayerHelper("detection_map")
    precision = helper.create_variable_for_type_inference("float32")
    if out_states is None:
        out_states = [helper.create_variable_for_type_inference(dtype) for dtype in ("int32", "float32", "float32")]
    states = input_states or (None, None, None)
    inputs: dict[str, Any] = {"DetectRes": detect_res, "Label": label, "HasState": has_state}
    inputs.update(zip(("PosCount", "TruePos", "FalsePos"), states, strict=True))
    outputs: dict[str, Any] = {"MAP": precision}
    outputs.update(zip(("AccumPosCount", "AccumTruePos", "AccumFalsePos"), out_states, strict=True))
    attrs = {
        "overlap_threshold": overlap_threshold,
        "evaluate_difficult": evaluate_difficult,
        "ap_type": ap_version,
        "class_num": class_num,
        "background_label": background_label,
    }
    helper.append_op(type="detection_map", inputs=inputs, outputs=outputs, attrs=attrs)
    return precision
