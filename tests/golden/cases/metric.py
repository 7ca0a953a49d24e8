"""Metrics, with their histories, and drawing classes from probabilities."""

import numpy as np

from golden.case import Case, f32, ints, layer_case


def column(*values):
    return np.array(values, "int64").reshape(-1, 1)


PREDICT = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.4, 0.6], [1, 0], [0, 1]], "float32")
CLICKS = column(0, 1, 0, 1, 0, 1)


def auc(pos, neg, predict=PREDICT, label=CLICKS, **attrs):
    return Case(
        "auc",
        {"Predict": predict, "Label": label, "StatPos": pos, "StatNeg": neg},
        outputs="AUC StatPosOut StatNegOut",
        attrs=dict({"num_thresholds": 9, "curve": "ROC"}, **attrs),
    )


def history(steps, counter, salt=0):
    """Sliding-window state: the windows, their sum, the counter."""
    windows = ints(steps, 10, high=5, salt=salt)
    return np.concatenate([windows.reshape(-1), windows.sum(0), [counter]])


NOTHING = np.zeros((1, 10), "int64")
SEEN = np.array([0, 1, 2, 2, 1, 0], "int32")
TRUE = np.array([0, 1, 1, 2, 0, 0], "int32")
JUDGED = {
    "MaxProbs": f32(4, 1),
    "Indices": column(0, 1, 1, 2).astype("int32"),
    "Labels": column(0, 1, 2, 2).astype("int32"),
}
WEIGHTS = np.array([[1], [0.5], [2], [0.25]], "float32")


def iou(seen, true, **extra):
    return Case(
        "mean_iou",
        dict({"Predictions": seen, "Labels": true}, **extra),
        outputs="OutMeanIou OutWrong OutCorrect",
        attrs={"num_classes": 4},
    )


def judge(**extra):
    return Case(
        "precision_recall",
        dict(JUDGED, **extra),
        outputs="BatchMetrics AccumMetrics AccumStatesInfo",
        attrs={"class_number": 4},
    )


CASES = [
    Case(
        "accuracy",
        {"Out": f32(4, 2), "Indices": np.array([[1, 2], [0, 3], [2, 2], [1, 0]], "int64"), "Label": column(2, 1, 2, 0)},
        outputs="Accuracy Correct Total",
    ),
    Case(
        "accuracy",
        {"Out": f32(3, 1), "Indices": column(1, 2, 0), "Label": column(1, 2, 1)},
        outputs="Accuracy Correct Total",
    ),
    auc(NOTHING, NOTHING, slide_steps=0),
    auc(NOTHING, NOTHING, slide_steps=0, curve="PR"),
    auc(ints(1, 10, high=4), ints(1, 10, high=4, salt=1), slide_steps=0),
    auc(NOTHING, NOTHING, slide_steps=0, label=CLICKS * 0),
    auc(NOTHING, NOTHING, slide_steps=0, label=CLICKS * 2 - 1),
    auc(NOTHING, NOTHING, slide_steps=0, predict=PREDICT[:, 1:].copy()),
    auc(history(1, 0), history(1, 0, salt=1), slide_steps=1),
    auc(history(2, 1), history(2, 1, salt=1), slide_steps=2),
    auc(history(2, 4), history(2, 4, salt=1), slide_steps=2),
    iou(SEEN, TRUE),
    iou(SEEN.astype("int64").reshape(2, 3), TRUE.astype("int64").reshape(2, 3)),
    iou(
        SEEN,
        TRUE,
        InWrongs=[np.array([1, 2, 3, 4], "int32"), np.array([1, 0, 0, 0], "int32")],
        InCorrects=[np.array([5, 5, 5, 5], "int32")],
        InMeanIou=[np.array([0.25], "float32"), np.array([0.5], "float32")],
    ),
    judge(),
    judge(Weights=WEIGHTS),
    judge(Weights=WEIGHTS, StatesInfo=f32(4, 4, low=0)),
    Case("sampling_id", {"X": np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], "float32")}),
    Case("sampling_id", {"X": f32(4, 3, low=0)}, attrs={"min": 0.0, "max": 0.5, "seed": 2}, check="shapes"),
]


@layer_case(CASES, grads=False, x=f32(6, 4), label=ints(6, 1, high=4))
def accuracy_layer(fluid, x, label):
    return fluid.layers.accuracy(x, label, k=2)


@layer_case(CASES, grads=False, x=f32(6, 4), label=ints(6, 1, high=4))
def accuracy_layer_with_counts(fluid, x, label):
    block = fluid.default_main_program().global_block()
    correct, total = (block.create_var(name=name, dtype="int32") for name in ("correct", "total"))
    return [fluid.layers.accuracy(x, label, correct=correct, total=total), correct, total]


@layer_case(CASES, grads=False, x=PREDICT, label=CLICKS)
def auc_layer(fluid, x, label):
    area, batch_area, states = fluid.layers.auc(x, label, num_thresholds=9)
    return [area, batch_area] + states


@layer_case(CASES, grads=False, x=PREDICT, label=CLICKS)
def auc_layer_with_longer_window(fluid, x, label):
    area, batch_area, states = fluid.layers.auc(x, label, curve="PR", slide_steps=3)
    return [area, batch_area]


@layer_case(CASES, grads=False, seen=ints(2, 5, high=4), true=ints(2, 5, high=4, salt=1))
def mean_iou_layer(fluid, seen, true):
    return list(fluid.layers.mean_iou(seen, true, 4))


@layer_case(CASES, grads=False, check="shapes", x=f32(4, 3, low=0))
def sampling_id_layer(fluid, x):
    return fluid.layers.sampling_id(x)
