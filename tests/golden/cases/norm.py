"""batch_norm, layer_norm and their relatives."""

import numpy as np

from golden.case import Case, f32, f64, layer_case

CASES = []


def batch_norm_case(x, name, channels, **attrs):
    wide = f64 if x.dtype == np.float64 else f32
    inputs = {
        "X": x,
        "Scale": wide(channels, salt=1, low=0.5, high=1.5),
        "Bias": wide(channels, salt=2),
        "Mean": wide(channels, salt=3),
        "Variance": wide(channels, salt=4, low=0.5, high=2.0),
    }
    outputs = "Y MeanOut VarianceOut SavedMean SavedVariance"
    inplace = {"MeanOut": "Mean", "VarianceOut": "Variance"}
    trained = not attrs.get("is_test")
    skip = "" if trained and x.size > channels else "SavedMean SavedVariance"
    reason = "scratch that nothing reads" if skip else ""
    CASES.append(
        Case(
            "batch_norm",
            inputs,
            outputs,
            attrs,
            "X Scale Bias" if trained else "",
            inplace,
            name,
            skip=skip,
            reason=reason,
        )
    )


batch_norm_case(f32(3, 4, 2, 5), "nchw", 4)
batch_norm_case(f32(3, 2, 5, 4), "nhwc", 4, data_layout="NHWC")
batch_norm_case(f32(6, 3), "matrix", 3, momentum=0.8, epsilon=1e-3)
batch_norm_case(f32(6, 3, salt=5), "matrix_nhwc", 3, data_layout="NHWC")
batch_norm_case(f32(4, 3, 5), "sequence", 3)
batch_norm_case(f32(1, 3), "one_value_per_channel", 3)
batch_norm_case(f32(2, 3, 2, 2, 3), "volume", 3)
batch_norm_case(f32(2, 3, 2, 2, 3).transpose(0, 2, 3, 4, 1).copy(), "volume_nhwc", 3, data_layout="NHWC")
batch_norm_case(f32(4, 2, 3, 3, low=9.0, high=10.0), "far_from_zero", 2)
batch_norm_case(f64(3, 4, 2, 5), "float64", 4)
batch_norm_case(f32(3, 4, 2, 5), "test", 4, is_test=True)
batch_norm_case(f32(3, 2, 5, 4), "test_nhwc", 4, is_test=True, data_layout="NHWC")
batch_norm_case(f32(6, 3), "test_matrix", 3, is_test=True)
batch_norm_case(f32(3, 4, 2, 5), "global_stats", 4, use_global_stats=True)
batch_norm_case(f32(3, 2, 5, 4), "global_stats_nhwc", 4, use_global_stats=True, data_layout="NHWC")
batch_norm_case(f32(2, 1, 3, 3), "one_channel", 1)

CASES.append(
    Case(
        "batch_norm",
        {
            "X": f32(3, 4, 2),
            "Scale": f32(4, salt=1),
            "Bias": f32(4, salt=2),
            "Mean": f32(4, salt=3),
            "Variance": f32(4, salt=4, low=0.5),
            "MomentumTensor": np.array([0.3], "float32"),
        },
        "Y MeanOut VarianceOut SavedMean SavedVariance",
        name="momentum_tensor",
        inplace={"MeanOut": "Mean", "VarianceOut": "Variance"},
    )
)

for name, x, axis in (
    ("matrix", f32(4, 6), 1),
    ("rows", f32(2, 3, 4), 2),
    ("rest", f32(2, 3, 4), 1),
    ("images", f32(2, 3, 2, 2), 1),
    ("one_row", f32(1, 7), 1),
):
    size = int(np.prod(x.shape[axis:]))
    scale, bias = f32(size, salt=1, low=0.5, high=1.5), f32(size, salt=2)
    CASES.append(
        Case(
            "layer_norm",
            {"X": x, "Scale": scale, "Bias": bias},
            "Y Mean Variance",
            {"begin_norm_axis": axis},
            "X Scale Bias",
            name=name,
        )
    )
CASES += [
    Case("layer_norm", {"X": f64(3, 5), "Scale": f64(5)}, "Y Mean Variance", name="float64"),
    Case("layer_norm", {"X": f32(4, 6)}, "Y Mean Variance", {"epsilon": 1e-3}, "X", name="plain"),
    Case("layer_norm", {"X": f32(4, 6), "Scale": f32(6, salt=1)}, "Y Mean Variance", {}, "X Scale", name="scaled"),
    Case("layer_norm", {"X": f32(4, 6), "Bias": f32(6, salt=1)}, "Y Mean Variance", {}, "X Bias", name="shifted"),
]

for name, x, attrs in (
    ("nchw", f32(2, 6, 2, 3), {"groups": 3}),
    ("nhwc", f32(2, 2, 3, 6), {"groups": 2, "data_layout": "NHWC"}),
    ("one_group", f32(2, 4, 3, 3), {"groups": 1}),
    ("as_many_groups", f32(2, 4, 3, 3, salt=1), {"groups": 4}),
    ("epsilon", f32(3, 4, 2, 2), {"groups": 2, "epsilon": 0.1}),
    ("float64", f64(2, 4, 2, 2), {"groups": 2}),
):
    wide = f64 if x.dtype == np.float64 else f32
    channels = x.shape[-1] if attrs.get("data_layout") == "NHWC" else x.shape[1]
    inputs = {"X": x, "Scale": wide(channels, salt=1, low=0.5, high=1.5), "Bias": wide(channels, salt=2)}
    CASES.append(Case("group_norm", inputs, "Y Mean Variance", attrs, "X Scale Bias", name=name))
CASES += [
    Case("group_norm", {"X": f32(2, 6, 2, 3)}, "Y Mean Variance", {"groups": 2}, "X", name="plain"),
    Case(
        "group_norm", {"X": f32(2, 6, 2, 3), "Bias": f32(6)}, "Y Mean Variance", {"groups": 2}, "X Bias", name="shifted"
    ),
    Case(
        "group_norm",
        {"X": f32(2, 6, 2, 3), "Scale": f32(6)},
        "Y Mean Variance",
        {"groups": 2},
        "X Scale",
        name="scaled",
    ),
]

for name, x, attrs in (
    ("images", f32(2, 3, 4, 2), {}),
    ("epsilon", f32(2, 3, 2, 2), {"epsilon": 1e-3}),
    ("sequence", f32(3, 2, 5), {}),
    ("volume", f32(2, 3, 2, 2, 2), {}),
    ("float64", f64(2, 3, 2, 2), {}),
):
    wide = f64 if x.dtype == np.float64 else f32
    inputs = {"X": x, "Scale": wide(x.shape[1], salt=1, low=0.5, high=1.5), "Bias": wide(x.shape[1], salt=2)}
    CASES.append(Case("instance_norm", inputs, "Y SavedMean SavedVariance", attrs, "X Scale Bias", name=name))


def statistics(size, wide=f32):
    return {
        "BatchSize": wide(size, salt=1, low=5, high=9),
        "BatchSum": wide(size, salt=2),
        "BatchSquareSum": wide(size, salt=3, low=4, high=7),
    }


CASES += [
    Case(
        "data_norm",
        dict(statistics(3), X=f32(4, 3)),
        "Y Means Scales",
        {"epsilon": 1e-5},
        "X BatchSize BatchSum BatchSquareSum",
    ),
    Case(
        "data_norm",
        dict(statistics(3), X=f32(4, 3, salt=7)),
        "Y Means Scales",
        {"epsilon": 1e-3},
        "X BatchSize BatchSum BatchSquareSum",
        name="epsilon",
    ),
    Case("data_norm", dict(statistics(3, f64), X=f64(4, 3)), "Y Means Scales", {"epsilon": 1e-5}, name="float64"),
    Case(
        "data_norm",
        dict(statistics(6), X=f32(4, 6) * (f32(4, 6, salt=1) > 0)),
        "Y Means Scales",
        {"slot_dim": 3, "epsilon": 1e-5},
        "X BatchSize BatchSum BatchSquareSum",
        name="slots",
    ),
    Case(
        "data_norm",
        dict(statistics(3), X=f32(4, 3), scale_w=f32(3, salt=5), bias=f32(3, salt=6)),
        "Y Means Scales",
        {"enable_scale_and_shift": True, "epsilon": 1e-5},
        "X BatchSize BatchSum BatchSquareSum scale_w bias",
        name="scale_and_shift",
    ),
]

for name, shape, attrs in (
    ("matrix", (4, 6), {}),
    ("filter", (3, 2, 2, 2), {"power_iters": 2}),
    ("second_dim", (3, 4, 2, 2), {"dim": 1, "power_iters": 1}),
    ("no_iteration", (4, 6), {"power_iters": 0}),
    ("epsilon", (2, 3, 2, 2), {"eps": 0.1, "power_iters": 3}),
):
    dim = attrs.get("dim", 0)
    CASES.append(
        Case(
            "spectral_norm",
            {"Weight": f32(*shape), "U": f32(shape[dim], salt=1), "V": f32(int(np.prod(shape)) // shape[dim], salt=2)},
            attrs=attrs,
            grads="Weight",
            name=name,
        )
    )

CASES += [
    Case(
        "lrn",
        {"X": f32(2, 7, 2, 3)},
        "Out MidOut",
        {"n": 5, "alpha": 0.3},
        "X",
        skip="MidOut",
        reason="an intermediate that gets no gradient",
        name="out",
    ),
    Case("lrn", {"X": f32(2, 7, 2, 3)}, "Out MidOut", {"n": 5, "alpha": 0.3}, name="middle"),
    Case("lrn", {"X": f32(1, 4, 2, 2)}, "Out MidOut", {"n": 3, "k": 2.0, "alpha": 0.5, "beta": 0.6}, name="attributes"),
    Case(
        "lrn",
        {"X": f32(1, 2, 2, 4)},
        "Out MidOut",
        {"n": 3, "alpha": 0.5, "data_format": "NHWC"},
        "X",
        skip="MidOut",
        reason="an intermediate that gets no gradient",
        name="nhwc",
    ),
    Case(
        "affine_channel",
        {"X": f32(2, 3, 2, 2), "Scale": f32(3), "Bias": f32(3, salt=1)},
        attrs={"data_layout": "NCHW"},
        grads="X Scale Bias",
    ),
    Case(
        "affine_channel",
        {"X": f32(2, 2, 2, 3), "Scale": f32(3), "Bias": f32(3, salt=1)},
        attrs={"data_layout": "NHWC"},
        grads="X Scale Bias",
        name="nhwc",
    ),
    Case(
        "affine_channel",
        {"X": f32(2, 2, 3), "Scale": f32(3), "Bias": f32(3, salt=1)},
        grads="X Scale Bias",
        name="any_layout",
    ),
    Case(
        "affine_channel",
        {"X": f64(2, 3, 2, 2), "Scale": f64(3), "Bias": f64(3, salt=1)},
        attrs={"data_layout": "NCHW"},
        name="float64",
    ),
]


@layer_case(CASES, x=f32(3, 4, 2, 5))
def batch_norm_layer(fluid, x):
    return fluid.layers.exp(fluid.layers.batch_norm(x))


@layer_case(CASES, x=f32(3, 2, 5, 4))
def batch_norm_with_options(fluid, x):
    return fluid.layers.batch_norm(
        x,
        act="relu",
        momentum=0.7,
        epsilon=1e-3,
        data_layout="NHWC",
        param_attr=fluid.ParamAttr(name="scale"),
        bias_attr=fluid.ParamAttr(name="shift"),
        moving_mean_name="mean",
        moving_variance_name="variance",
        do_model_average_for_mean_and_var=True,
    )


# Parameters get their values from their names; the values of these are positive, as a variance has to be.
POSITIVE = "variance_3"


@layer_case(CASES, grads=False, x=f32(3, 2, 2, 5))
def batch_norm_in_test(fluid, x):
    return fluid.layers.batch_norm(x, is_test=True, moving_variance_name=POSITIVE)


@layer_case(CASES, x=f32(3, 2, 2, 5))
def batch_norm_with_global_stats(fluid, x):
    return fluid.layers.batch_norm(x, use_global_stats=True, moving_variance_name=POSITIVE)


@layer_case(CASES, x=f32(6, 3))
def batch_norm_after_fc(fluid, x):
    hidden = fluid.layers.fc(x, 4, bias_attr=False)
    return fluid.layers.batch_norm(hidden, act="tanh")


@layer_case(CASES, x=f32(4, 2, 3))
def layer_norm_layer(fluid, x):
    return fluid.layers.exp(fluid.layers.layer_norm(x))


@layer_case(CASES, x=f32(4, 2, 3))
def layer_norm_with_options(fluid, x):
    return [
        fluid.layers.layer_norm(x, scale=False, begin_norm_axis=2, act="sigmoid"),
        fluid.layers.layer_norm(x, shift=False, epsilon=1e-4, param_attr=fluid.ParamAttr(name="scale")),
        fluid.layers.layer_norm(x, scale=False, shift=False),
    ]


@layer_case(CASES, x=f32(2, 6, 2, 2))
def group_norm_layer(fluid, x):
    return [
        fluid.layers.group_norm(x, 3),
        fluid.layers.group_norm(x, 2, param_attr=True, bias_attr=True, act="relu"),
        fluid.layers.group_norm(x, 1, 1e-3, "scale", "shift", None, "NHWC"),
    ]


@layer_case(CASES, x=f32(2, 3, 2, 4))
def instance_norm_layer(fluid, x):
    # Squares of normalised values have hardly a gradient; exponentials do.
    plain, named = fluid.layers.instance_norm(x), fluid.layers.instance_norm(x, 1e-3, "scale", "shift")
    return [fluid.layers.exp(plain), fluid.layers.exp(named)]


@layer_case(CASES, x=f32(4, 3))
def data_norm_layer(fluid, x):
    # The values of the statistics come from their names: these are positive.
    given = {"batch_size": 10.0, "batch_square": 20.0}
    return fluid.layers.data_norm(x, name="count_110", param_attr=given, epsilon=1e-4)


@layer_case(CASES)
def spectral_norm_layer(fluid):
    weight = fluid.layers.create_parameter([3, 2, 2], "float32", name="weight")
    return [fluid.layers.spectral_norm(weight), fluid.layers.spectral_norm(weight, dim=1, power_iters=2, eps=1e-8)]


@layer_case(CASES, x=f32(2, 4, 2, 2))
def lrn_layer(fluid, x):
    return [fluid.layers.lrn(x), fluid.layers.lrn(x, n=3, k=2.0, alpha=0.5, beta=0.5)]


@layer_case(CASES, x=f32(2, 3, 2, 2))
def affine_channel_layer(fluid, x):
    scale = fluid.layers.create_parameter([3], "float32", name="scale")
    bias = fluid.layers.create_parameter([3], "float32", name="bias")
    return fluid.layers.affine_channel(x, scale, bias, act="relu")
