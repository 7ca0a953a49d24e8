"""Labels that are ignored, labels that do not exist, and softmax over rows that would overflow."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OpError, OutOfRangeError


def gradient_of_logits(label, **options):
    logits = fluid.layers.data("logits", [3], stop_gradient=False)
    target = fluid.layers.data("label", [1], dtype="int64")
    loss = fluid.layers.softmax_with_cross_entropy(logits, target, **options)
    gradient = fluid.gradients([loss], [logits])[0]
    feed = {"logits": np.array([[1, 2, 3], [3, 2, 1]], "float32"), "label": np.array(label, "int64").reshape(-1, 1)}
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[loss, gradient])


def test_an_ignored_label_costs_nothing_and_has_no_gradient():
    loss, gradient = gradient_of_logits([0, -100])
    assert loss[1] == 0 and loss[0] > 2
    assert not gradient[1].any() and gradient[0].any()


def test_a_class_can_be_ignored():
    loss, gradient = gradient_of_logits([1, 2], ignore_index=2)
    assert loss[1] == 0
    assert not gradient[1].any()


@pytest.mark.parametrize("label", [3, -1])
def test_a_label_out_of_range_is_reported(label):
    with pytest.raises(OutOfRangeError, match="softmax_with_cross_entropy"):
        gradient_of_logits([0, label])


def test_a_hard_label_needs_a_last_dim_of_one():
    logits = fluid.layers.data("logits", [3])
    label = fluid.layers.data("label", [3], dtype="int64")
    with pytest.raises(OpError, match="with 1 at axis -1, as soft_label is False"):
        fluid.layers.softmax_with_cross_entropy(logits, label)


@pytest.mark.parametrize("loss_of", [fluid.layers.cross_entropy, fluid.layers.softmax_with_cross_entropy])
def test_labels_declared_without_a_dtype_are_fed_as_integers(loss_of):
    scores = fluid.layers.softmax(fluid.layers.fc(fluid.layers.data("x", [4]), 3))
    loss = fluid.layers.mean(loss_of(scores, fluid.layers.data("label", [1])))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((2, 4), "float32"), "label": np.array([[0], [2]], "int64")}
    first, *_, last = (exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(20))
    assert last < first
