"""Ranking losses and pair counts."""

import numpy as np

from golden.case import Case, f32, f64, ints, layer_case


def rows(*values):
    return np.array(values, "float32").reshape(len(values), -1)


PAIRS = {
    "Score": rows([0.1, 0.9], [0.5, 0.2], [0.5, 0.2], [0.3, 0.7], [0.3, 0.1], [0.8, 0.8]),
    "Label": rows(1, 0, 1, 2, 0, 1),
    "QueryID": np.array([[7], [7], [7], [3], [3], [3]], "int64"),
}

CASES = [
    Case(
        "rank_loss",
        {"Left": f32(5, 1), "Right": f32(5, 1, salt=1), "Label": f32(5, 1, low=0, salt=2)},
        grads="Left Right",
    ),
    Case(
        "rank_loss",
        {"Left": rows(0, 1, -30), "Right": rows(80, 1, 20), "Label": rows(1, 0.5, 0)},
        grads="Left Right",
        name="far_apart",
    ),
    Case(
        "margin_rank_loss",
        {"X1": rows(100, 0, 1), "X2": rows(0, 100, 1), "Label": rows(1, 1, -1)},
        outputs="Activated Out",
        attrs={"margin": 0.0},
        grads="X1 X2",
    ),
    Case(
        "margin_rank_loss",
        {"X1": f32(6, 1), "X2": f32(6, 1, salt=1), "Label": rows(1, -1, 1, -1, 1, -1)},
        outputs="Activated Out",
        attrs={"margin": 0.3},
        grads="X1 X2",
    ),
    Case(
        "margin_rank_loss",
        {"X1": f32(6, 1), "X2": f32(6, 1, salt=1), "Label": rows(1, -1, 1, -1, 1, -1)},
        outputs="Activated Out",
        attrs={"margin": 0.1},
    ),
    Case("bpr_loss", {"X": f32(4, 5), "Label": ints(4, 1, high=5)}, outputs="Y", grads="X"),
    Case(
        "bpr_loss",
        {
            "X": rows([0, 60, 3], [0, 0, 87], [0, 0, 90], [100, -100, 0]),
            "Label": np.array([[0], [1], [1], [1]], "int64"),
        },
        outputs="Y",
        grads="X",
        name="extreme",
    ),
    # Real Fluid's gradient of more than two dims reads the wrong labels.
    Case("bpr_loss", {"X": f32(2, 3, 4), "Label": ints(2, 3, 1, high=4)}, outputs="Y"),
    Case("bpr_loss", {"X": f64(2, 3), "Label": ints(2, 1, high=3)}, outputs="Y"),
    Case("positive_negative_pair", PAIRS, outputs="PositivePair NegativePair NeutralPair"),
    Case("positive_negative_pair", PAIRS, outputs="PositivePair NegativePair NeutralPair", attrs={"column": -1}),
    Case(
        "positive_negative_pair",
        dict(
            PAIRS,
            Weight=rows(1, 2, 3, 4, 5, 6),
            AccumulatePositivePair=np.array([1], "float32"),
            AccumulateNegativePair=np.array([2], "float32"),
            AccumulateNeutralPair=np.array([3], "float32"),
        ),
        outputs="PositivePair NegativePair NeutralPair",
        attrs={"column": 1},
    ),
]


@layer_case(CASES, label=f32(4, 1, low=0), left=f32(4, 1, salt=1), right=f32(4, 1, salt=2))
def rank_loss_layer(fluid, label, left, right):
    label.stop_gradient = True
    return fluid.layers.rank_loss(label, left, right)


@layer_case(CASES, label=rows(1, -1, 1, -1), left=f32(4, 1, salt=1), right=f32(4, 1, salt=2))
def margin_rank_loss_layer(fluid, label, left, right):
    label.stop_gradient = True
    return fluid.layers.margin_rank_loss(label, left, right, margin=0.2)


@layer_case(CASES, x=f32(4, 5), label=ints(4, 1, high=5))
def bpr_loss_layer(fluid, x, label):
    return fluid.layers.bpr_loss(x, label)
