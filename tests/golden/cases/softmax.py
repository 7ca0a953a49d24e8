"""Softmax and cross entropies, with the extremes where Fluid clips."""

import numpy as np

from golden.case import Case, f32, f64, ints, layer_case

EXTREME = np.array([[1000, 0, -1000, 3], [0, -70, -63, -65]], "float32")
ZEROS = np.array([[0, 0.5, 1e-30, 0.5], [1, 0, 0, 0]], "float32")


def column(*values):
    return np.array(values, "int64").reshape(-1, 1)


def probabilities(*shape, **options):
    values = f64(*shape, low=0.1, high=1.0, **options)
    return (values / values.sum(-1, keepdims=True)).astype("float32")


CASES = [
    Case("softmax", {"X": f32(3, 5)}, grads="X"),
    Case("softmax", {"X": f32(2, 3, 4)}, attrs={"axis": 1}, grads="X"),
    Case("softmax", {"X": f32(2, 3, 4)}, attrs={"axis": -3}, grads="X"),
    Case("softmax", {"X": f64(2, 3)}, attrs={"axis": -1}, grads="X"),
    Case("softmax", {"X": f32(4, 1)}, grads="X"),
    Case("softmax", {"X": f32(6)}, grads="X"),
    Case("softmax", {"X": EXTREME}, grads="X", name="extreme"),
    Case("cross_entropy", {"X": probabilities(5, 4), "Label": ints(5, 1, high=4)}, outputs="Y", grads="X"),
    Case("cross_entropy", {"X": probabilities(2, 3, 4), "Label": ints(2, 3, 1, high=4)}, outputs="Y", grads="X"),
    Case("cross_entropy", {"X": probabilities(5, 4), "Label": ints(5, high=4)}, outputs="Y", grads="X"),
    Case("cross_entropy", {"X": probabilities(4, 3), "Label": column(0, -100, 2, 1)}, outputs="Y", grads="X"),
    Case(
        "cross_entropy",
        {"X": probabilities(4, 3), "Label": column(0, 2, 2, 1)},
        attrs={"ignore_index": 2},
        outputs="Y",
        grads="X",
    ),
    Case(
        "cross_entropy",
        {"X": probabilities(4, 3), "Label": probabilities(4, 3, salt=1)},
        attrs={"soft_label": True},
        outputs="Y",
        grads="X",
    ),
    Case(
        "cross_entropy",
        {"X": probabilities(2, 2, 3), "Label": probabilities(2, 2, 3, salt=1)},
        attrs={"soft_label": True},
        outputs="Y",
        grads="X",
    ),
    Case("cross_entropy", {"X": f64(3, 4, low=0.1), "Label": ints(3, 1, high=4)}, outputs="Y", grads="X"),
    Case("cross_entropy", {"X": ZEROS, "Label": column(0, 1)}, outputs="Y", grads="X", name="zero"),
    Case("cross_entropy", {"X": ZEROS, "Label": column(2, 0)}, outputs="Y", grads="X", name="tiny"),
    Case(
        "cross_entropy",
        {"X": ZEROS, "Label": np.array([[1, 0, 0, 2], [0.5, 0.5, 0, 0]], "float32")},
        attrs={"soft_label": True},
        outputs="Y",
        grads="X",
        name="soft_zero",
    ),
    Case(
        "cross_entropy2",
        {"X": probabilities(5, 4), "Label": ints(5, 1, high=4)},
        outputs="Y MatchX XShape",
        grads="X",
        skip="XShape",
    ),
    Case(
        "cross_entropy2",
        {"X": probabilities(2, 3, 4), "Label": ints(2, 3, 1, high=4)},
        outputs="Y MatchX XShape",
        grads="X",
        skip="XShape",
    ),
    Case(
        "cross_entropy2",
        {"X": probabilities(4, 3), "Label": column(0, -100, 2, 1)},
        outputs="Y MatchX XShape",
        grads="X",
        skip="XShape",
    ),
    Case(
        "cross_entropy2",
        {"X": probabilities(4, 3), "Label": column(0, 1, 2, 1)},
        attrs={"ignore_index": 1},
        outputs="Y MatchX XShape",
        grads="X",
        skip="XShape",
    ),
    Case(
        "cross_entropy2",
        {"X": ZEROS, "Label": column(0, 1)},
        outputs="Y MatchX XShape",
        grads="X",
        skip="XShape",
        name="zero",
    ),
    Case(
        "softmax_with_cross_entropy",
        {"Logits": f32(5, 7), "Label": ints(5, 1, high=7)},
        outputs="Softmax Loss",
        grads="Logits",
    ),
    Case(
        "softmax_with_cross_entropy",
        {"Logits": f32(2, 3, 4), "Label": ints(2, 3, 1, high=4)},
        outputs="Softmax Loss",
        grads="Logits",
    ),
    Case(
        "softmax_with_cross_entropy",
        {"Logits": f32(2, 3, 4), "Label": ints(2, 1, 4, high=3)},
        outputs="Softmax Loss",
        attrs={"axis": 1},
        grads="Logits",
    ),
    Case(
        "softmax_with_cross_entropy",
        {"Logits": f32(3, 2), "Label": ints(1, 2, high=3)},
        outputs="Softmax Loss",
        attrs={"axis": -2},
        grads="Logits",
    ),
    Case(
        "softmax_with_cross_entropy",
        {"Logits": f64(3, 2), "Label": ints(3, 1, high=2)},
        outputs="Softmax Loss",
        attrs={"numeric_stable_mode": False},
    ),
    Case(
        "softmax_with_cross_entropy",
        {"Logits": f32(4, 3), "Label": probabilities(4, 3)},
        outputs="Softmax Loss",
        attrs={"soft_label": True},
        grads="Logits",
    ),
    Case(
        "softmax_with_cross_entropy",
        {"Logits": f32(4, 3, 2), "Label": f32(4, 3, 2, salt=1)},
        outputs="Softmax Loss",
        attrs={"soft_label": True, "axis": 1},
        grads="Logits",
    ),
    # Real Fluid's CPU gradient forgets ignore_index (and writes outside the tensor for -100); only values are recorded.
    Case("softmax_with_cross_entropy", {"Logits": f32(4, 3), "Label": column(0, -100, 2, 1)}, outputs="Softmax Loss"),
    Case(
        "softmax_with_cross_entropy",
        {"Logits": f32(4, 3), "Label": column(0, 1, 2, 1)},
        outputs="Softmax Loss",
        attrs={"ignore_index": 1},
    ),
    Case(
        "softmax_with_cross_entropy",
        {"Logits": EXTREME, "Label": column(2, 1)},
        outputs="Softmax Loss",
        grads="Logits",
        name="extreme",
    ),
    Case(
        "softmax_with_cross_entropy",
        {"Logits": EXTREME, "Label": np.array([[0, 1, 0.5, 0.5], [1, 2, 0, 0]], "float32")},
        outputs="Softmax Loss",
        attrs={"soft_label": True},
        grads="Logits",
        name="soft_extreme",
    ),
    Case("sigmoid_cross_entropy_with_logits", {"X": f32(3, 4), "Label": f32(3, 4, low=0, salt=1)}, grads="X"),
    Case(
        "sigmoid_cross_entropy_with_logits",
        {
            "X": np.array([[100, -100, 0, 1], [-0.5, 2, -3, 40]], "float32"),
            "Label": np.array([[0, 1, -100, 0.3], [1, -100, 0.5, 0]], "float32"),
        },
        grads="X",
        name="extreme",
    ),
    Case(
        "sigmoid_cross_entropy_with_logits",
        {"X": f32(2, 3), "Label": np.array([[0, 1, -1], [1, -1, -1]], "float32")},
        attrs={"ignore_index": -1, "normalize": True},
        grads="X",
    ),
    Case("sigmoid_cross_entropy_with_logits", {"X": f64(2, 3), "Label": f64(2, 3, low=0)}, attrs={"normalize": True}),
]


@layer_case(CASES, x=f32(3, 5))
def softmax_layer(fluid, x):
    return fluid.layers.softmax(x)


@layer_case(CASES, x=f32(2, 3, 4))
def softmax_layer_with_axis(fluid, x):
    return fluid.layers.softmax(x, use_cudnn=False, name="over_axis", axis=1)


@layer_case(CASES, x=f32(6, 5), label=ints(6, 1, high=4))
def cross_entropy_layer(fluid, x, label):
    prediction = fluid.layers.fc(x, 4, act="softmax")
    return fluid.layers.cross_entropy(prediction, label)


@layer_case(CASES, x=probabilities(4, 3), label=column(0, 2, 1, 2))
def cross_entropy_layer_ignoring(fluid, x, label):
    return fluid.layers.cross_entropy(x, label, ignore_index=2)


@layer_case(CASES, x=probabilities(4, 3), label=probabilities(4, 3, salt=2))
def cross_entropy_layer_soft(fluid, x, label):
    return fluid.layers.cross_entropy(x, label, soft_label=True)


@layer_case(CASES, x=f32(6, 5), label=ints(6, 1, high=5))
def softmax_with_cross_entropy_layer(fluid, x, label):
    return fluid.layers.softmax_with_cross_entropy(x, label)


@layer_case(CASES, x=f32(2, 5, 3), label=ints(2, 1, 3, high=5))
def softmax_with_cross_entropy_layer_both(fluid, x, label):
    loss, softmax = fluid.layers.softmax_with_cross_entropy(
        x, label, numeric_stable_mode=True, return_softmax=True, axis=1
    )
    return [loss, softmax]


@layer_case(CASES, x=f32(3, 4), label=f32(3, 4, low=0, salt=1))
def sigmoid_cross_entropy_layer(fluid, x, label):
    return fluid.layers.sigmoid_cross_entropy_with_logits(x, label, ignore_index=-1, normalize=True)
