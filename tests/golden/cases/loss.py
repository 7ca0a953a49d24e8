"""Regression, margin, distance and distillation losses, with the points where they bend."""

import numpy as np

from golden.case import Case, f32, f64, ints, layer_case


def rows(*values):
    return np.array(values, "float32").reshape(len(values), -1)


BENDS = {"X": rows([0, 0.25, 1, -1.5], [2, 0, 0.5, 1]), "Y": rows([0, 0, 0, 0.5], [1, 1, 1, 2])}
TARGET = rows([0.3, 0, 0.5], [-1, 1, 0.2])
MARGINS = rows(-3, -1, 0, 1, 2)
CENTERS = {
    "X": f32(4, 3),
    "Label": np.array([[0], [1], [0], [4]], "int64"),
    "Centers": f32(5, 3),
    "CenterUpdateRate": np.array([0.1], "float32"),
}

CASES = [
    Case("smooth_l1_loss", BENDS, outputs="Diff Out", grads="X Y"),
    Case(
        "smooth_l1_loss", {"X": f32(3, 4), "Y": f32(3, 4, salt=1)}, outputs="Diff Out", attrs={"sigma": 2.0}, grads="X"
    ),
    Case(
        "smooth_l1_loss",
        {"X": f32(2, 4), "Y": f32(2, 4, salt=1), "InsideWeight": f32(2, 4, salt=2), "OutsideWeight": f32(2, 4, salt=3)},
        outputs="Diff Out",
        attrs={"sigma": 1.5},
        grads="X Y",
    ),
    Case(
        "smooth_l1_loss",
        {"X": f32(2, 3, 2), "Y": f32(2, 3, 2, salt=1)},
        outputs="Diff Out",
        attrs={"sigma": 3.0},
        grads="X Y",
    ),
    Case(
        "huber_loss",
        {"X": rows(0, 1, 2, 3), "Y": rows(0, 0, 0, 5)},
        outputs="Residual Out",
        attrs={"delta": 1.0},
        grads="X Y",
    ),
    Case(
        "huber_loss",
        {"X": f32(6, 1), "Y": f32(6, 1, salt=1)},
        outputs="Residual Out",
        attrs={"delta": 0.3},
        grads="X Y",
    ),
    Case("modified_huber_loss", {"X": MARGINS, "Y": rows(1, 1, 1, 1, 0)}, outputs="IntermediateVal Out", grads="X"),
    Case("hinge_loss", {"Logits": MARGINS, "Labels": rows(1, 1, 1, 1, 0)}, outputs="Loss", grads="Logits"),
    Case(
        "log_loss",
        {"Predicted": rows(0, 1, 0.5), "Labels": rows(1, 0, 0.25)},
        outputs="Loss",
        attrs={"epsilon": 1e-4},
        grads="Predicted",
    ),
    Case(
        "log_loss",
        {"Predicted": f32(5, 1, low=0.01), "Labels": f32(5, 1, low=0, salt=1)},
        outputs="Loss",
        attrs={"epsilon": 1e-7},
        grads="Predicted",
    ),
    Case("bce_loss", {"X": rows([0, 1, 0.5, 0.3, 1e-20]), "Label": rows([1, 0, 0.3, 1, 1])}, grads="X"),
    Case("kldiv_loss", {"X": f32(2, 3), "Target": TARGET}, outputs="Loss", attrs={"reduction": "none"}, grads="X"),
    Case("kldiv_loss", {"X": f32(2, 3), "Target": TARGET}, outputs="Loss", attrs={"reduction": "batchmean"}, grads="X"),
    Case("kldiv_loss", {"X": f32(2, 3), "Target": TARGET}, outputs="Loss", attrs={"reduction": "mean"}, grads="X"),
    Case("kldiv_loss", {"X": f32(2, 3), "Target": TARGET}, outputs="Loss", attrs={"reduction": "sum"}, grads="X"),
    Case("kldiv_loss", {"X": f64(2, 3, 2), "Target": f64(2, 3, 2, low=0)}, outputs="Loss"),
    Case("squared_l2_distance", {"X": f32(3, 4), "Y": f32(3, 4, salt=1)}, outputs="sub_result Out", grads="X Y"),
    Case("squared_l2_distance", {"X": f32(3, 2, 2), "Y": f32(1, 2, 2, salt=1)}, outputs="sub_result Out", grads="X Y"),
    Case("squared_l2_distance", {"X": f32(3, 4), "Y": f32(1, 4)}, outputs="sub_result Out"),
    Case("label_smooth", {"X": rows([0, 1, 0], [1, 0, 0])}, attrs={"epsilon": 0.1}, grads="X"),
    Case(
        "label_smooth",
        {"X": rows([0, 1, 0], [1, 0, 0]), "PriorDist": rows([0.2, 0.3, 0.5])},
        attrs={"epsilon": 0.3},
        grads="X",
    ),
    Case("label_smooth", {"X": f64(2, 2, 4)}, attrs={"epsilon": 0.2}),
    Case(
        "teacher_student_sigmoid_loss",
        {"X": rows(100, -100, 0.5, 2, -1, 1, 15, -15, 0), "Label": rows(-3, -2, -1, -0.5, 0, 0.5, 1, 1.3, 2)},
        outputs="Y",
        grads="X",
    ),
    Case(
        "teacher_student_sigmoid_loss",
        {"X": f32(6, 1), "Label": rows(-2, -1, 0.2, 0.9, 1.4, 2)},
        outputs="Y",
        attrs={"soft_max_up_bound": 0.5, "soft_max_lower_bound": -0.5},
        grads="X",
    ),
    Case(
        "center_loss",
        CENTERS,
        outputs="CentersOut SampleCenterDiff Loss",
        attrs={"cluster_num": 5, "need_update": True},
        grads="X",
        skip="CentersOut SampleCenterDiff",
    ),
    Case(
        "center_loss",
        CENTERS,
        outputs="CentersOut SampleCenterDiff Loss",
        attrs={"cluster_num": 5, "need_update": True},
    ),
    Case(
        "center_loss",
        CENTERS,
        outputs="CentersOut SampleCenterDiff Loss",
        attrs={"cluster_num": 5, "need_update": False},
    ),
]


@layer_case(CASES, x=f32(4, 3), y=f32(4, 1))
def square_error_cost_layer(fluid, x, y):
    return fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y)


@layer_case(CASES, x=f32(4, 3), y=f32(4, 3, salt=1))
def mse_loss_layer(fluid, x, y):
    return fluid.layers.mse_loss(x, y)


@layer_case(CASES, x=f32(3, 4), y=f32(3, 4, salt=1))
def smooth_l1_layer(fluid, x, y):
    return fluid.layers.smooth_l1(x, y)


@layer_case(CASES, x=f32(3, 4), y=f32(3, 4, salt=1), inside=f32(3, 4, salt=2), outside=f32(3, 4, salt=3))
def smooth_l1_layer_weighted(fluid, x, y, inside, outside):
    inside.stop_gradient = outside.stop_gradient = True
    return fluid.layers.smooth_l1(x, y, inside_weight=inside, outside_weight=outside, sigma=2.0)


@layer_case(CASES, x=f32(5, 1), y=f32(5, 1, salt=1))
def huber_loss_layer(fluid, x, y):
    return fluid.layers.huber_loss(x, y, 0.4)


@layer_case(CASES, x=f32(5, 1, low=0.1), y=f32(5, 1, low=0, salt=1))
def log_loss_layer(fluid, x, y):
    return fluid.layers.log_loss(x, y)


@layer_case(CASES, x=f32(3, 4), y=f32(3, 4, low=0, salt=1))
def kldiv_loss_layer(fluid, x, y):
    return [fluid.layers.kldiv_loss(x, y), fluid.layers.kldiv_loss(x, y, reduction="none", name="each")]


@layer_case(CASES, x=f32(6, 1), y=f32(6, 1, low=-2, high=2, salt=1))
def teacher_student_sigmoid_loss_layer(fluid, x, y):
    return fluid.layers.teacher_student_sigmoid_loss(x, y, soft_max_up_bound=10)


@layer_case(CASES, anchor=f32(4, 3), positive=f32(4, 3, salt=1), labels=ints(4, high=2))
def npair_loss_layer(fluid, anchor, positive, labels):
    return fluid.layers.npair_loss(anchor, positive, labels, l2_reg=0.01)


@layer_case(CASES, anchor=f32(4, 3), positive=f32(4, 3, salt=1), labels=np.array([1, 2, 1, 2], "float32"))
def npair_loss_layer_with_float_labels(fluid, anchor, positive, labels):
    labels.stop_gradient = True
    return fluid.layers.npair_loss(anchor, positive, labels)


@layer_case(CASES, x=f32(4, 3, low=0), label=ints(4, 1, high=3))
def dice_loss_layer(fluid, x, label):
    return fluid.layers.dice_loss(x, label)


@layer_case(CASES, x=f32(2, 4, 3, low=0), label=ints(2, 4, 1, high=3))
def dice_loss_layer_of_images(fluid, x, label):
    return fluid.layers.dice_loss(x, label, epsilon=0.1)


@layer_case(CASES, grads=False, label=ints(4, 1, high=3))
def label_smooth_layer(fluid, label):
    return fluid.layers.label_smooth(fluid.layers.one_hot(label, 3), epsilon=0.2)


@layer_case(CASES, grads=False, label=f32(4, 3), prior=f32(1, 3))
def label_smooth_layer_with_prior(fluid, label, prior):
    return fluid.layers.label_smooth(label, prior_dist=prior, epsilon=0.2, dtype="float32", name="smooth")


@layer_case(CASES, x=f32(4, 3), label=ints(4, 1, high=5))
def center_loss_layer(fluid, x, label):
    return fluid.layers.center_loss(
        x, label, num_classes=5, alpha=0.1, param_attr=fluid.initializer.Constant(0.5), update_center=True
    )
