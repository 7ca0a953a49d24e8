"""Pooling ops and layers."""

import numpy as np

from golden.case import Case, distinct, f32, layer_case

CASES = []


def pool(op, x, name="", **attrs):
    CASES.append(Case(op, {"X": x}, attrs=attrs, grads="X", name=name))


def wide(*shape):
    return distinct(*shape).astype("float64")


ties = np.round(f32(2, 3, 7, 8) * 2)
image = distinct(2, 3, 7, 8)
for kind in ("max", "avg"):
    x = image if kind == "max" else f32(2, 3, 7, 8)
    pool("pool2d", x, kind + "_apart", pooling_type=kind, ksize=[2, 2], strides=[2, 2], paddings=[0, 0])
    pool("pool2d", x, kind + "_overlapping", pooling_type=kind, ksize=[3, 2], strides=[2, 1], paddings=[1, 0])
    pool("pool2d", x, kind + "_everywhere", pooling_type=kind, ksize=[3, 3], strides=[1, 1], paddings=[1, 1])
    pool("pool2d", x, kind + "_gaps", pooling_type=kind, ksize=[2, 1], strides=[3, 2], paddings=[0, 0])
    pool("pool2d", x, kind + "_ceil", pooling_type=kind, ksize=[3, 3], strides=[2, 3], paddings=[1, 0], ceil_mode=True)
    pool("pool2d", x, kind + "_asymmetric", pooling_type=kind, ksize=[3, 3], strides=[2, 2], paddings=[0, 1, 2, 1])
    pool(
        "pool2d",
        x,
        kind + "_same",
        pooling_type=kind,
        ksize=[3, 2],
        strides=[2, 3],
        paddings=[0, 0],
        padding_algorithm="SAME",
    )
    pool(
        "pool2d",
        x,
        kind + "_valid",
        pooling_type=kind,
        ksize=[3, 2],
        strides=[2, 3],
        paddings=[1, 1],
        padding_algorithm="VALID",
    )
    pool(
        "pool2d",
        x,
        kind + "_global",
        pooling_type=kind,
        ksize=[2, 2],
        strides=[2, 2],
        paddings=[1, 1],
        global_pooling=True,
    )
    pool(
        "pool2d",
        wide(2, 6, 8, 3),
        kind + "_nhwc_float64",
        pooling_type=kind,
        ksize=[3, 3],
        strides=[2, 2],
        paddings=[1, 1],
        data_format="NHWC",
    )
    pool(
        "pool2d",
        wide(1, 2, 20, 21),
        kind + "_large",
        pooling_type=kind,
        ksize=[17, 18],
        strides=[2, 3],
        paddings=[1, 2],
    )
    pool("pool2d", wide(1, 2, 20, 21), kind + "_large_global", pooling_type=kind, ksize=[1, 1], global_pooling=True)
    pool(
        "pool3d",
        distinct(2, 2, 4, 5, 6),
        kind + "_apart",
        pooling_type=kind,
        ksize=[2, 2, 3],
        strides=[2, 2, 3],
        paddings=[0, 0, 0],
    )
    pool(
        "pool3d",
        distinct(2, 2, 4, 5, 6),
        kind + "_ceil",
        pooling_type=kind,
        ksize=[3, 2, 3],
        strides=[2, 2, 1],
        paddings=[1, 0, 1],
        ceil_mode=True,
    )
    pool(
        "pool3d",
        distinct(2, 4, 5, 6, 2),
        kind + "_ndhwc",
        pooling_type=kind,
        ksize=[3, 2, 3],
        strides=[2, 2, 1],
        paddings=[1, 0, 0, 1, 1, 1],
        data_format="NDHWC",
    )
    pool("pool3d", distinct(2, 2, 4, 5, 6), kind + "_global", pooling_type=kind, ksize=[1, 1, 1], global_pooling=True)
# For an adaptive maximum real Fluid has max_pool2d_with_index; pool2d itself then takes ksize for the windows' size.
pool(
    "pool2d",
    f32(2, 3, 7, 8),
    "avg_adaptive",
    pooling_type="avg",
    ksize=[3, 5],
    strides=[1, 1],
    paddings=[0, 0],
    adaptive=True,
)
pool(
    "pool2d",
    f32(2, 3, 7, 8),
    "avg_adaptive_even",
    pooling_type="avg",
    ksize=[7, 4],
    strides=[1, 1],
    paddings=[0, 0],
    adaptive=True,
)
pool(
    "pool2d",
    f32(2, 3, 7, 8),
    "avg_adaptive_to_one",
    pooling_type="avg",
    ksize=[1, 1],
    strides=[1, 1],
    paddings=[0, 0],
    adaptive=True,
)
pool(
    "pool3d",
    f32(2, 2, 4, 5, 6),
    "avg_adaptive",
    pooling_type="avg",
    ksize=[3, 2, 6],
    adaptive=True,
    strides=[1, 1, 1],
    paddings=[0, 0, 0],
)
for ceil in (False, True):
    pool(
        "pool2d",
        f32(2, 3, 7, 8),
        "avg_counting_padding" + "_ceil" * ceil,
        pooling_type="avg",
        ksize=[3, 3],
        strides=[2, 2],
        paddings=[1, 1],
        exclusive=False,
        ceil_mode=ceil,
    )
pool(
    "pool3d",
    f32(2, 2, 4, 5, 6),
    "avg_counting_padding",
    pooling_type="avg",
    ksize=[3, 3, 3],
    strides=[2, 2, 2],
    paddings=[1, 1, 1],
    exclusive=False,
)
# Among equal maxima the first gets the gradient.
pool("pool2d", ties, "max_of_equals", pooling_type="max", ksize=[2, 2], strides=[2, 2], paddings=[0, 0])
pool("pool2d", ties, "max_of_equals_overlapping", pooling_type="max", ksize=[3, 3], strides=[2, 2], paddings=[1, 1])
pool(
    "pool2d",
    np.zeros((2, 2, 18, 18), "float32"),
    "max_of_equals_large",
    pooling_type="max",
    ksize=[17, 17],
    strides=[1, 1],
    paddings=[0, 0],
)
pool(
    "pool2d",
    np.zeros((2, 2, 18, 18), "float32"),
    "max_of_equals_global",
    pooling_type="max",
    ksize=[1, 1],
    global_pooling=True,
)
strange = distinct(1, 2, 4, 6)
strange[0, 0, :2, :2] = -np.inf
strange[0, 0, 0, 2] = strange[0, 1, 1, 1] = strange[0, 1, 2, 3] = np.nan
strange[0, 1, 3, 5] = np.inf
pool("pool2d", strange, "max_of_strange_numbers", pooling_type="max", ksize=[2, 2], strides=[2, 2], paddings=[0, 0])


def indexed(op, x, name="", grads="X", **attrs):
    CASES.append(Case(op, {"X": x}, "Out Mask", attrs, grads, name=name))


for x, suffix in ((image, ""), (ties, "_of_equals")):
    indexed("max_pool2d_with_index", x, "apart" + suffix, ksize=[2, 2], strides=[2, 2], paddings=[0, 0])
    indexed("max_pool2d_with_index", x, "overlapping" + suffix, ksize=[3, 3], strides=[2, 1], paddings=[1, 1])
    indexed(
        "max_pool2d_with_index",
        x,
        "global" + suffix,
        ksize=[2, 2],
        strides=[1, 1],
        paddings=[0, 0],
        global_pooling=True,
    )
    indexed(
        "max_pool2d_with_index", x, "adaptive" + suffix, ksize=[3, 5], strides=[1, 1], paddings=[0, 0], adaptive=True
    )
# Real Fluid declares its gradient to be float32.
indexed("max_pool2d_with_index", wide(1, 2, 6, 6), "float64", "", ksize=[3, 3], strides=[2, 2], paddings=[0, 0])
indexed(
    "max_pool3d_with_index", distinct(2, 2, 4, 5, 6), "apart", ksize=[2, 2, 3], strides=[2, 2, 3], paddings=[0, 0, 0]
)
indexed(
    "max_pool3d_with_index",
    distinct(2, 2, 4, 5, 6),
    "overlapping",
    ksize=[3, 2, 3],
    strides=[1, 2, 2],
    paddings=[1, 0, 1],
)
indexed(
    "max_pool3d_with_index",
    distinct(2, 2, 4, 5, 6),
    "adaptive",
    ksize=[3, 2, 4],
    strides=[1, 1, 1],
    paddings=[0, 0, 0],
    adaptive=True,
)


@layer_case(CASES, x=distinct(2, 3, 7, 8))
def pool2d_layers(fluid, x):
    pool2d = fluid.layers.pool2d
    return [
        pool2d(x, 2, pool_stride=2),
        pool2d(x, (3, 2), "avg", pool_stride=[2, 1], pool_padding=1, ceil_mode=True),
        pool2d(x, global_pooling=True, pool_type="avg"),
        pool2d(x, 3, pool_padding="SAME", pool_stride=2),
        pool2d(x, 3, "avg", pool_padding=[1, 0, 2, 1], exclusive=False, name="blur"),
        pool2d(x, 3, pool_padding=[[0, 0], [0, 0], [1, 1], [2, 1]]),
    ]


@layer_case(CASES, x=distinct(2, 7, 8, 3))
def pool2d_channels_last(fluid, x):
    return fluid.layers.pool2d(x, 2, "avg", 2, [[0, 0], [1, 0], [0, 1], [0, 0]], data_format="NHWC")


@layer_case(CASES, x=distinct(2, 2, 4, 5, 6))
def pool3d_layers(fluid, x):
    pool3d = fluid.layers.pool3d
    return [
        pool3d(x, 2, "avg", 2),
        pool3d(x, (2, 3, 1), pool_padding=[1, 0, 0], pool_stride=2),
        pool3d(x, global_pooling=True),
        pool3d(x, 2, pool_padding=[1, 0, 1, 1, 0, 0]),
    ]


@layer_case(CASES, x=distinct(2, 3, 7, 8))
def adaptive_pool2d_layers(fluid, x):
    return [
        fluid.layers.adaptive_pool2d(x, [2, 3], require_index=True)[0],
        fluid.layers.adaptive_pool2d(x, 3, "avg"),
        fluid.layers.adaptive_pool2d(x, (7, 4)),
    ]


@layer_case(CASES, grads=False, x=distinct(2, 3, 7, 8))
def adaptive_pool2d_indices(fluid, x):
    return list(fluid.layers.adaptive_pool2d(x, [2, 3], require_index=True))


@layer_case(CASES, x=distinct(2, 2, 4, 5, 6))
def adaptive_pool3d_layers(fluid, x):
    return [
        fluid.layers.adaptive_pool3d(x, [2, 3, 3], require_index=True)[0],
        fluid.layers.adaptive_pool3d(x, 2, "avg"),
    ]


@layer_case(CASES, grads=False, x=distinct(2, 2, 4, 5, 6))
def adaptive_pool3d_indices(fluid, x):
    return list(fluid.layers.adaptive_pool3d(x, [2, 3, 3], require_index=True))
