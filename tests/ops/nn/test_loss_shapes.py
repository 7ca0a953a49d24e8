"""Losses of inputs whose shapes differ. JAX would broadcast [N] and [N, 1] to [N, N] and train on all pairs."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OpError

# Op type: its two inputs that must have one shape, its output, and attributes.
PAIRWISE = {
    "bce_loss": ("X", "Label", "Out", {}),
    "hinge_loss": ("Logits", "Labels", "Loss", {}),
    "huber_loss": ("X", "Y", "Out", {"delta": 1.0}),
    "kldiv_loss": ("X", "Target", "Loss", {"reduction": "none"}),
    "log_loss": ("Predicted", "Labels", "Loss", {"epsilon": 1e-4}),
    "modified_huber_loss": ("X", "Y", "Out", {}),
    "sigmoid_cross_entropy_with_logits": ("X", "Label", "Out", {}),
    "smooth_l1_loss": ("X", "Y", "Out", {}),
    "squared_l2_distance": ("X", "Y", "Out", {}),
    "teacher_student_sigmoid_loss": ("X", "Label", "Y", {}),
}


def variable(name, shape, dtype="float32"):
    return fluid.layers.data(name, shape, append_batch_size=False, dtype=dtype)


def append(op_type, inputs, output, attrs):
    block = fluid.default_main_program().global_block()
    out = block.create_var(name="out", dtype="float32")
    block.append_op(type=op_type, inputs=inputs, outputs={output: [out]}, attrs=attrs)
    return out


@pytest.mark.parametrize("shapes", [([5], [5, 1]), ([5, 1], [5]), ([-1, 1], [-1]), ([5, 3], [5, 1])], ids=str)
@pytest.mark.parametrize("op_type", PAIRWISE)
def test_a_loss_of_two_shapes_is_refused(op_type, shapes):
    first, second, output, attrs = PAIRWISE[op_type]
    inputs = {first: [variable("x", shapes[0])], second: [variable("y", shapes[1])]}
    with pytest.raises(OpError, match="shape"):
        append(op_type, inputs, output, attrs)


@pytest.mark.parametrize("op_type", PAIRWISE)
def test_a_loss_of_one_shape_is_accepted(op_type):
    first, second, output, attrs = PAIRWISE[op_type]
    inputs = {first: [variable("x", [-1, 1])], second: [variable("y", [-1, 1])]}
    assert append(op_type, inputs, output, attrs).shape == (-1, 1)


@pytest.mark.parametrize("shapes", [([5, 1], [5], [5]), ([5], [5, 1], [5]), ([5, 1], [5, 1], [5])], ids=str)
def test_rank_loss_takes_rows_with_and_without_a_last_dim_and_answers_like_its_label(shapes):
    label, left, right = (variable(name, shape) for name, shape in zip("abc", shapes, strict=True))
    loss = fluid.layers.rank_loss(label, left, right)
    assert list(loss.shape) == shapes[0]
    numbers = np.linspace(0, 1, 15, dtype="float32").reshape(3, 5)
    feed = {name: row.reshape(shape) for name, row, shape in zip("abc", numbers, shapes, strict=True)}
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[loss])[0]
    difference = numbers[1] - numbers[2]
    expected = np.log1p(np.exp(difference)) - numbers[0] * difference
    assert found == pytest.approx(expected.reshape(shapes[0]), rel=1e-5)


@pytest.mark.parametrize("shapes", [([5, 3], [5, 3], [5, 3]), ([5, 1], [1, 1], [5, 1]), ([5, 1], [5, 1], [1])], ids=str)
def test_rank_loss_refuses_other_numbers_of_rows_or_columns(shapes):
    variables = [variable(name, shape) for name, shape in zip("abc", shapes, strict=True)]
    with pytest.raises(OpError, match="must have the shape"):
        fluid.layers.rank_loss(*variables)


@pytest.mark.parametrize("shapes", [([5, 1], [5], [5]), ([5], [5, 1], [5]), ([5, 1], [5, 1], [1, 1])], ids=str)
def test_margin_rank_loss_refuses_shapes_that_differ(shapes):
    variables = [variable(name, shape) for name, shape in zip("abc", shapes, strict=True)]
    with pytest.raises(OpError, match="Label, X1 and X2 must have the same shape"):
        fluid.layers.margin_rank_loss(*variables)


@pytest.mark.parametrize("shapes", [([5, 3], [5]), ([5, 3], [5, 1]), ([5, 3], [4, 3]), ([5], [5, 1])], ids=str)
def test_cosines_need_rows_of_one_size(shapes):
    with pytest.raises(OpError, match="cos_sim: Y must have the shape of X, or its shape with one row"):
        fluid.layers.cos_sim(variable("x", shapes[0]), variable("y", shapes[1]))


@pytest.mark.parametrize("soft, label", [(True, [5, 1]), (True, [1, 3]), (False, [5, 3]), (False, [1, 1])])
def test_cross_entropy_refuses_a_label_that_would_be_repeated(soft, label):
    target = variable("y", label, "float32" if soft else "int64")
    with pytest.raises(OpError, match="shape"):
        fluid.layers.cross_entropy(variable("x", [5, 3]), target, soft_label=soft)


@pytest.mark.parametrize("layer", [fluid.layers.square_error_cost, fluid.layers.mse_loss])
@pytest.mark.parametrize("shapes", [([-1, 1], [-1]), ([-1], [-1, 1]), ([5, 1], [1, 3])], ids=str)
def test_squared_errors_of_all_pairs_are_refused(layer, shapes):
    with pytest.raises(ValueError, match="would be compared in all pairs"):
        layer(variable("x", shapes[0]), variable("y", shapes[1]))


def test_a_column_of_labels_is_compared_with_every_column():
    assert fluid.layers.square_error_cost(variable("x", [-1, 3]), variable("y", [-1, 1])).shape == (-1, 3)


@pytest.mark.parametrize("label", [[1, 5], [1, 1], [5, 2]], ids=str)
def test_bpr_loss_needs_a_label_for_every_row(label):
    with pytest.raises(OpError, match=r"bpr_loss: Label must have the shape \[5, 1\], not"):
        fluid.layers.bpr_loss(variable("x", [5, 3]), variable("y", label, "int64"))


def test_center_loss_needs_a_label_for_every_row():
    with pytest.raises(OpError, match="center_loss: Label must have the shape"):
        fluid.layers.center_loss(variable("x", [5, 3]), variable("y", [1, 1], "int64"), 4, 0.1, fluid.ParamAttr())


def test_hierarchical_sigmoid_needs_a_label_for_every_row():
    with pytest.raises(OpError, match="X and Label must have the same number of rows"):
        fluid.layers.hsigmoid(variable("x", [5, 3]), variable("y", [1, 1], "int64"), 4)


def test_nce_needs_a_label_for_every_row():
    with pytest.raises(OpError, match="Label must have one row for each of the 5 rows of Input, not 1"):
        fluid.layers.nce(variable("x", [5, 3]), variable("y", [1, 5], "int64"), 4)


def test_accuracy_needs_a_label_for_every_row():
    with pytest.raises(OpError, match=r"Label must have one element for each of 5 rows, not the shape \[1, 5\]"):
        fluid.layers.accuracy(variable("x", [5, 3]), variable("y", [1, 5], "int64"))


def test_auc_needs_two_classes():
    with pytest.raises(OpError, match=r"auc: Predict \[5, 3\] must have one or two columns"):
        fluid.layers.auc(variable("x", [5, 3]), variable("y", [5, 1], "int64"))
