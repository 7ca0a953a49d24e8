"""Interpolation of images and volumes."""

import numpy as np

from golden.case import Case, distinct, f32, f64, layer_case

CASES = []


def resize_case(op, x, name, inputs=None, **attrs):
    attrs.setdefault("interp_method", op.split("_")[0])
    CASES.append(Case(op, dict(inputs or {}, X=x), attrs=attrs, grads="X", name=name))


for corners in (True, False):
    for mode in (0, 1):
        how = {"align_corners": corners, "align_mode": mode}
        suffix = "_%s_%d" % ("corners" if corners else "edges", mode)
        resize_case("bilinear_interp", f32(2, 3, 4, 5), "larger" + suffix, out_h=7, out_w=9, **how)
        resize_case("bilinear_interp", f32(2, 2, 7, 6), "smaller" + suffix, out_h=3, out_w=4, **how)
        resize_case("trilinear_interp", f32(1, 2, 3, 4, 2), "larger" + suffix, out_d=5, out_h=5, out_w=4, **how)
    how = {"align_corners": corners}
    suffix = "_corners" if corners else "_edges"
    resize_case("nearest_interp", distinct(2, 3, 4, 5), "larger" + suffix, out_h=7, out_w=9, **how)
    resize_case("nearest_interp", distinct(2, 2, 7, 6), "smaller" + suffix, out_h=3, out_w=4, **how)
    resize_case("bicubic_interp", f32(1, 2, 5, 4), "larger" + suffix, out_h=8, out_w=9, **how)
    resize_case("bicubic_interp", f32(1, 2, 7, 6), "smaller" + suffix, out_h=3, out_w=4, **how)
    resize_case("trilinear_interp", f32(1, 2, 5, 4, 6), "smaller" + suffix, out_d=3, out_h=2, out_w=4, **how)

resize_case("bilinear_interp", f32(2, 3, 4, 5), "scale", scale=2.0)
resize_case("bilinear_interp", f32(2, 3, 5, 5), "fraction", scale=0.7, align_corners=False, align_mode=0)
resize_case("bilinear_interp", f32(2, 3, 4, 5), "same", out_h=4, out_w=5)
resize_case("bilinear_interp", f32(2, 3, 4, 5), "one_pixel", out_h=1, out_w=1)
resize_case("bilinear_interp", f32(2, 3, 1, 1), "from_one_pixel", out_h=3, out_w=2, align_corners=False)
CASES.append(Case("bilinear_interp", {"X": f64(2, 3, 4, 5)}, attrs={"out_h": 6, "out_w": 3}, name="float64"))
resize_case("bilinear_interp", f32(2, 4, 5, 3), "nhwc", out_h=6, out_w=3, data_layout="NHWC")
resize_case("nearest_interp", f32(2, 4, 5, 3), "nhwc", out_h=6, out_w=3, data_layout="NHWC", align_corners=False)
resize_case("trilinear_interp", f32(1, 3, 4, 2, 2), "ndhwc", out_d=2, out_h=6, out_w=3, data_layout="NHWC")
resize_case("nearest_interp", f32(2, 3, 4, 5), "scale", scale=3.0, align_corners=False)
resize_case("trilinear_interp", f32(1, 2, 3, 4, 2), "scale", scale=2.0)
resize_case("bilinear_interp", f32(2, 3, 4, 5), "out_size", {"OutSize": np.array([6, 3], "int32")}, out_h=6, out_w=3)
resize_case(
    "nearest_interp",
    f32(2, 3, 4, 5),
    "size_tensors",
    {"SizeTensor": [np.array([6], "int32"), np.array([3], "int32")]},
    out_h=-1,
    out_w=3,
)
resize_case("bilinear_interp", f32(2, 3, 4, 5), "scale_tensor", {"Scale": np.array([1.5], "float32")})
resize_case(
    "trilinear_interp",
    f32(1, 2, 3, 4, 2),
    "out_size",
    {"OutSize": np.array([2, 6, 3], "int32")},
    out_d=2,
    out_h=6,
    out_w=3,
)


@layer_case(CASES, x=f32(2, 3, 4, 6))
def resize_layers(fluid, x):
    layers = fluid.layers
    return [
        layers.image_resize(x, [8, 9]),
        layers.image_resize(x, scale=2, resample="NEAREST", align_corners=False),
        layers.image_resize(x, [8, 9], None, None, "BILINEAR", None, False, 0),
        layers.image_resize_short(x, 3),
        layers.resize_bilinear(x, [3, 3]),
        layers.resize_bilinear(x, scale=1.5, align_mode=0),
        layers.resize_nearest(x, [3, 3], align_corners=False),
        layers.resize_nearest(x, (5, 4), data_format="NHWC"),
    ]


@layer_case(CASES, x=f32(1, 2, 3, 4, 6))
def resize_volume(fluid, x):
    return [
        fluid.layers.resize_trilinear(x, [2, 8, 9]),
        fluid.layers.image_resize(x, scale=2.0, resample="TRILINEAR", align_corners=False, data_format="NCDHW"),
    ]


@layer_case(CASES, x=f32(2, 3, 4, 6))
def resize_by_variables(fluid, x):
    layers = fluid.layers
    size = layers.fill_constant([1], "int32", 7)
    shape = layers.assign(np.array([5, 3], "int32"))
    factor = layers.fill_constant([1], "float32", 2.0)
    return [
        layers.resize_bilinear(x, [size, 3]),
        layers.resize_nearest(x, shape),
        layers.resize_bilinear(x, scale=factor),
        layers.resize_bilinear(x, [2, 2], actual_shape=shape),
    ]
