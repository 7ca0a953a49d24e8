"""Activations and functions of one tensor, at their kinks too."""

import numpy as np

from golden.case import Case, Lod, f32, f64, layer_case

KINKS = np.float32([-2, -1, -0.5, 0, 0.5, 1, 2])
# Real Fluid mixes up widths in the gradients of these when an op is built without its layer.
MIXED = ("gelu", "erf", "mish", "sign")
FAR = np.float32([-100, -30, -3, 3, 30, 100])

CASES = []
for kind in (
    "relu",
    "sigmoid",
    "logsigmoid",
    "exp",
    "tanh",
    "atan",
    "tanh_shrink",
    "softshrink",
    "abs",
    "ceil",
    "floor",
    "cos",
    "sin",
    "round",
    "square",
    "softplus",
    "softsign",
    "gelu",
    "erf",
    "brelu",
    "leaky_relu",
    "soft_relu",
    "elu",
    "relu6",
    "stanh",
    "hard_shrink",
    "thresholded_relu",
    "hard_sigmoid",
    "swish",
    "hard_swish",
    "selu",
    "mish",
    "sign",
):
    CASES.append(Case(kind, {"X": KINKS}, grads="X"))
    CASES.append(Case(kind, {"X": f32(2, 3, low=-3, high=3)}, grads="X", name="noise"))
    CASES.append(Case(kind, {"X": f64(2, 1, 3, low=-3, high=3)}, grads="" if kind in MIXED else "X", name="float64"))
for kind in ("sqrt", "rsqrt", "log", "log1p", "reciprocal"):
    CASES.append(Case(kind, {"X": f32(2, 3, low=0.1, high=4)}, grads="X"))
    CASES.append(Case(kind, {"X": f64(2, 3, low=0.1, high=4)}, grads="X", name="float64"))
for kind in ("acos", "asin"):
    CASES.append(Case(kind, {"X": f32(2, 3, low=-0.9, high=0.9)}, grads="X"))
    CASES.append(Case(kind, {"X": np.float32([-1, 0, 1])}, name="ends"))
for kind in ("sigmoid", "logsigmoid", "tanh", "softplus", "soft_relu", "swish", "gelu", "selu", "mish"):
    CASES.append(Case(kind, {"X": FAR}, grads="X", name="far"))

CASES += [
    Case("sqrt", {"X": np.float32([0, 4])}, grads="X", name="zero"),
    Case("log", {"X": np.float32([-1, 0, 4])}, grads="X", name="not positive"),
    Case("round", {"X": np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997])}, name="halves"),
    Case("exp", {"X": np.int64([-2, 0, 3])}, name="int64"),
    Case("abs", {"X": np.int64([-2, 0, 3])}, name="int64"),
    Case("square", {"X": np.int32([-2, 0, 3])}, name="int32"),
    Case("pow", {"X": np.int64([-2, 0, 3])}, attrs={"factor": 2.0}, name="int64"),
    Case("relu", {"X": Lod(f32(5, 2), [[2, 3]])}, grads="X", name="sequence"),
    Case("softshrink", {"X": KINKS}, attrs={"lambda": 1.0}, grads="X", name="lambda"),
    Case("gelu", {"X": f32(2, 3, low=-3, high=3)}, attrs={"approximate": True}, grads="X", name="approximate"),
    Case("brelu", {"X": KINKS}, attrs={"t_min": -1.0, "t_max": 1.0}, grads="X", name="bounds"),
    Case("leaky_relu", {"X": KINKS}, attrs={"alpha": 0.1}, grads="X", name="alpha"),
    Case("leaky_relu", {"X": KINKS}, attrs={"alpha": 0.0}, grads="X", name="alpha 0"),
    Case("leaky_relu", {"X": KINKS}, attrs={"alpha": 2.0}, name="steeper"),
    Case("soft_relu", {"X": KINKS}, attrs={"threshold": 1.0}, grads="X", name="threshold"),
    Case("elu", {"X": KINKS}, attrs={"alpha": 0.5}, grads="X", name="alpha"),
    Case("relu6", {"X": KINKS}, attrs={"threshold": 1.0}, grads="X", name="threshold"),
    Case("pow", {"X": KINKS}, attrs={"factor": 2.0}, grads="X"),
    Case("pow", {"X": KINKS}, attrs={"factor": 1.0}, grads="X", name="one"),
    Case("pow", {"X": f32(2, 3, low=0.1)}, attrs={"factor": -0.7}, grads="X", name="negative"),
    Case("pow", {"X": f64(3, low=0.1)}, attrs={"factor": 0.5}, grads="X", name="float64"),
    Case("pow", {"X": KINKS, "FactorTensor": np.float32([3])}, attrs={"factor": 2.0}, grads="X", name="tensor"),
    Case("stanh", {"X": KINKS}, attrs={"scale_a": 2.0 / 3.0, "scale_b": 1.2}, grads="X", name="scales"),
    Case("hard_shrink", {"X": KINKS}, attrs={"threshold": 1.0}, grads="X", name="threshold"),
    Case("thresholded_relu", {"X": KINKS}, attrs={"threshold": 0.5}, grads="X", name="threshold"),
    Case("hard_sigmoid", {"X": KINKS}, attrs={"slope": 0.5, "offset": 0.5}, grads="X", name="slope"),
    Case("swish", {"X": KINKS}, attrs={"beta": 2.3}, grads="X", name="beta"),
    Case("hard_swish", {"X": KINKS}, attrs={"threshold": 1.0, "offset": 0.5, "scale": 2.0}, grads="X", name="scales"),
    Case("hard_swish", {"X": np.float32([-4, -3, 0, 3, 4])}, grads="X", name="borders"),
    Case("selu", {"X": KINKS}, attrs={"scale": 1.5, "alpha": 2.0}, grads="X", name="scales"),
    Case("mish", {"X": KINKS}, attrs={"threshold": 1.0}, name="threshold"),
    Case(
        "prelu", {"X": np.float32([[-1, 0, 1, 2]]), "Alpha": np.float32([0.3])}, attrs={"mode": "all"}, grads="X Alpha"
    ),
    Case(
        "prelu",
        {"X": f32(2, 3, 2, 2), "Alpha": f32(1, 3, 1, 1)},
        attrs={"mode": "channel"},
        grads="X Alpha",
        name="channel",
    ),
    Case(
        "prelu",
        {"X": f32(2, 4), "Alpha": f32(1, 4, 1, 1)},
        attrs={"mode": "channel"},
        grads="X Alpha",
        name="channel of a matrix",
    ),
    Case(
        "prelu", {"X": f32(2, 3, 2), "Alpha": f32(1, 3, 2)}, attrs={"mode": "element"}, grads="X Alpha", name="element"
    ),
    Case("prelu", {"X": Lod(f32(5, 2), [[2, 3]]), "Alpha": f32(1)}, attrs={"mode": "all"}, name="sequence"),
    Case("maxout", {"X": f32(2, 6, 2, 3)}, attrs={"groups": 2}, grads="X"),
    Case("maxout", {"X": f32(2, 6, 2, 1)}, attrs={"groups": 3}, grads="X", name="three"),
    Case("maxout", {"X": f32(1, 2, 2, 4)}, attrs={"groups": 2, "axis": 3}, grads="X", name="last"),
    Case(
        "maxout",
        {"X": np.float32([1, 1, 2, 1, 0, 0, 0, 0]).reshape(1, 4, 2, 1)},
        attrs={"groups": 2},
        grads="X",
        name="tie",
    ),
]


@layer_case(CASES, x=f32(2, 3, low=-3, high=3))
def activations_without_attributes(fluid, x):
    names = [
        "sigmoid",
        "logsigmoid",
        "exp",
        "tanh",
        "atan",
        "tanh_shrink",
        "abs",
        "ceil",
        "floor",
        "cos",
        "sin",
        "round",
        "square",
        "softplus",
        "softsign",
        "relu",
        "gelu",
        "erf",
        "sign",
    ]
    return [getattr(fluid.layers, name)(x) for name in names]


@layer_case(CASES, x=f32(2, 3, low=0.1, high=0.9))
def functions_of_positive_numbers(fluid, x):
    return [getattr(fluid.layers, name)(x) for name in ("sqrt", "rsqrt", "log", "log1p", "reciprocal", "acos", "asin")]


@layer_case(CASES, x=f32(2, 3))
def named_activations(fluid, x):
    layers = fluid.layers
    return [
        layers.relu(x, name="a"),
        layers.tanh(x, name="b"),
        layers.elu(x, 0.5, name="c"),
        layers.square(x, "d"),
        layers.relu6(x, name="e"),
        layers.exp(x, name="f"),
    ]


@layer_case(CASES, x=f32(2, 3, low=-3, high=3))
def activations_with_default_attributes(fluid, x):
    names = [
        "softshrink",
        "hard_shrink",
        "thresholded_relu",
        "brelu",
        "leaky_relu",
        "soft_relu",
        "elu",
        "relu6",
        "hard_sigmoid",
        "swish",
        "hard_swish",
        "mish",
        "selu",
        "pow",
    ]
    return [getattr(fluid.layers, name)(x) for name in names]


@layer_case(CASES, x=f32(2, 3, low=-3, high=3))
def activations_with_attributes(fluid, x):
    layers = fluid.layers
    return [
        layers.softshrink(x, alpha=0.3),
        layers.hard_shrink(x, threshold=0.2),
        layers.hard_shrink(x, 0.4),
        layers.thresholded_relu(x, 0.4),
        layers.brelu(x, -1.0, 1.0),
        layers.leaky_relu(x, alpha=0.1),
        layers.soft_relu(x, 20.0),
        layers.elu(x, alpha=0.2),
        layers.relu6(x, threshold=2.0),
        layers.stanh(x, 0.5, 1.2),
        layers.hard_sigmoid(x, 0.3, 0.4),
        layers.swish(x, beta=2.0),
        layers.hard_swish(x, 4.0, 4.0, 2.0),
        layers.selu(x, scale=1.5, alpha=2.0),
        layers.gelu(x, approximate=True),
        layers.pow(x, 3.0),
        layers.pow(x, factor=2),
    ]


@layer_case(CASES, x=f32(2, 3, low=0.2, high=3))
def pow_of_a_tensor(fluid, x):
    return fluid.layers.pow(x, factor=fluid.layers.fill_constant([1], "float32", 1.5), name="power")


@layer_case(CASES, x=f32(2, 3, 2, 2), y=f32(2, 4))
def prelu_layer(fluid, x, y):
    layers = fluid.layers
    return [
        layers.prelu(x, "all"),
        layers.prelu(x, "channel", param_attr="slopes"),
        layers.prelu(x, mode="element", name="each"),
        layers.prelu(y, "element"),
    ]


@layer_case(CASES, x=f32(2, 6, 2, 3))
def maxout_layer(fluid, x):
    return fluid.layers.maxout(x, 2), fluid.layers.maxout(x, groups=3, name="best")
