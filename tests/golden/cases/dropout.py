"""dropout: exact where nothing is random, shapes and dtypes elsewhere."""

from golden.case import Case, f32, f64, layer_case

CASES = [
    Case("dropout", {"X": f32(2, 3, 4)}, "Out Mask", {"dropout_prob": 0.0}, "X", name="nothing_dropped"),
    Case("dropout", {"X": f32(2, 3, 4)}, "Out Mask", {"dropout_prob": 1.0}, "X", name="all_dropped"),
    Case(
        "dropout",
        {"X": f32(2, 3, 4)},
        "Out Mask",
        {"dropout_prob": 0.0, "dropout_implementation": "upscale_in_train"},
        "X",
        name="nothing_dropped_upscaled",
    ),
    Case(
        "dropout",
        {"X": f32(2, 3, 4)},
        "Out Mask",
        {"dropout_prob": 1.0, "dropout_implementation": "upscale_in_train"},
        "X",
        name="all_dropped_upscaled",
    ),
    Case("dropout", {"X": f32(20, 6)}, "Out Mask", {"dropout_prob": 0.4}, "X", check="shapes", name="random"),
    Case("dropout", {"X": f64(20, 6)}, "Out Mask", {}, check="shapes", name="random_float64"),
    Case(
        "dropout",
        {"X": f32(20, 6)},
        "Out Mask",
        {"dropout_prob": 0.4, "fix_seed": True, "seed": 3, "dropout_implementation": "upscale_in_train"},
        "X",
        check="shapes",
        name="seeded",
    ),
]


@layer_case(CASES, check="shapes", x=f32(8, 5))
def dropout_layer(fluid, x):
    hidden = fluid.layers.fc(x, 4)
    return [
        fluid.layers.dropout(hidden, 0.5),
        fluid.layers.dropout(hidden, 0.2, seed=7, dropout_implementation="upscale_in_train"),
    ]


@layer_case(CASES, grads=False, x=f32(8, 5), wide=f64(3, 2))
def dropout_in_test(fluid, x, wide):
    return [
        fluid.layers.dropout(wide, 0.3, is_test=True),
        fluid.layers.dropout(x, 0.5, is_test=True),
        fluid.layers.dropout(x, 0.2, True, dropout_implementation="upscale_in_train"),
    ]


@layer_case(CASES, x=f32(8, 5))
def dropout_of_nothing(fluid, x):
    return fluid.layers.dropout(fluid.layers.fc(x, 4), 0.0)
