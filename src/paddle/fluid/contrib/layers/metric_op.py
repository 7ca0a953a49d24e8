"""Metrics of predicted clicks that a program accumulates over batches."""

from __future__ import annotations

from paddle.fluid import layers
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable

__all__ = ["ctr_metric_bundle"]


def ctr_metric_bundle(input: Variable, label: Variable) -> tuple[Variable, ...]:
    """Accumulates what metrics of click rates need.

    Args:
      input: predicted click rates, of shape [samples, 1].
      label: whether each sample was clicked, as 0 or 1.

    Returns:
      Sums over all batches so far: squared errors, absolute errors, predictions, sigmoids of predictions (q), clicks
      and samples. From them follow, for example, the RMSE, sqrt(squared errors / samples), and the ratio of predicted
      to actual clicks. In distributed training they are to be added up over the trainers.
    """
    if tuple(input.shape) != tuple(label.shape):
        raise ValueError(f"ctr_metric_bundle: input has shape {list(input.shape)}, but label {list(label.shape)}")
    helper = LayerHelper("ctr_metric_bundle")

    def total() -> Variable:
        variable = helper.create_global_variable(persistable=True, dtype="float32", shape=[1])
        return helper.set_variable_initializer(variable, Constant(0.0))

    absolute, squared, predictions, q, clicks, samples = (total() for _ in range(6))
    error = layers.elementwise_sub(input, label)

    def norm(kind: str) -> Variable:
        out = helper.create_variable_for_type_inference("float32")
        helper.append_op(type=kind, inputs={"X": error}, outputs={"Out": out})
        return out

    def add(of_batch: Variable, so_far: Variable) -> None:
        helper.append_op(type="elementwise_add", inputs={"X": of_batch, "Y": so_far}, outputs={"Out": so_far})

    add(norm("squared_l2_norm"), squared)
    add(norm("l1_norm"), absolute)
    add(layers.reduce_sum(input, dim=0), predictions)
    add(layers.reduce_sum(layers.sigmoid(input), dim=0), q)
    add(layers.reduce_sum(label, dim=0), clicks)
    ones = layers.fill_constant_batch_size_like(label, [-1, 1], "float32", 1.0)
    add(layers.reduce_sum(ones, dim=0), samples)
    return squared, absolute, predictions, q, clicks, samples
