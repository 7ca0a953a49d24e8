"""Metric layers."""

from __future__ import annotations

from paddle.fluid import layers
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_single_op, require_floating, require_integer
from refluid.ir import Variable

__all__ = ["accuracy", "auc", "mean_iou"]


def accuracy(
    input: Variable, label: Variable, k: int = 1, correct: Variable | None = None, total: Variable | None = None
) -> Variable:
    """Computes the fraction of rows whose label is among the ``k`` highest scores.

    Args:
      correct, total: variables that receive the two counts.
    """
    require_floating("accuracy", input=input)
    helper = LayerHelper("accuracy", input=input)
    scores, classes = layers.topk(input, k=k)
    share = helper.create_variable_for_type_inference("float32")
    correct = helper.create_variable_for_type_inference("int32") if correct is None else correct
    total = helper.create_variable_for_type_inference("int32") if total is None else total
    helper.append_op(
        type="accuracy",
        inputs={"Out": [scores], "Indices": [classes], "Label": [label]},
        outputs={"Accuracy": [share], "Correct": [correct], "Total": [total]},
    )
    return share


def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[Variable, Variable, list[Variable]]:
    """Computes the area under the ROC curve, over all batches so far and over the last ``slide_steps`` batches.

    Args:
      input: [batch, 2]; the second column is the probability of the positive class.
      label: 0 or 1.

    Returns:
      Both areas, and the four variables that hold the histograms: batch positives and negatives, global positives and
      negatives.
    """
    require_floating("auc", input=input)
    helper = LayerHelper("auc", input=input)
    area, batch_area = (helper.create_variable_for_type_inference("float64") for _ in range(2))
    buckets = num_thresholds + 1
    shapes = ([(1 + slide_steps) * buckets + 1] if slide_steps else [1, buckets], [1, buckets])
    states = [
        helper.create_global_variable(persistable=True, dtype="int64", shape=shape)
        for shape in shapes
        for _ in range(2)
    ]
    for state in states:
        helper.set_variable_initializer(state, Constant(value=0.0, force_cpu=False))
    for out, (positives, negatives), steps in ((batch_area, states[:2], slide_steps), (area, states[2:], 0)):
        helper.append_op(
            type="auc",
            inputs={"Predict": [input], "Label": [label], "StatPos": [positives], "StatNeg": [negatives]},
            outputs={"AUC": [out], "StatPosOut": [positives], "StatNegOut": [negatives]},
            attrs={"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps},
        )
    return area, batch_area, states


def mean_iou(input: Variable, label: Variable, num_classes: int) -> tuple[Variable, Variable, Variable]:
    """Computes the mean intersection over union of the classes, and the wrong and correct counts of each class."""
    require_integer("mean_iou", input=input, label=label)
    outputs = {"OutMeanIou": "float32", "OutWrong": "int32", "OutCorrect": "int32"}
    made = append_single_op("mean_iou", {"Predictions": input, "Labels": label}, outputs, {"num_classes": num_classes})
    return made["OutMeanIou"], made["OutWrong"], made["OutCorrect"]
