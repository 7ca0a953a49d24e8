"""deformable_conv and deformable_conv_v1."""

from golden.case import Case, f32, f64, layer_case

CASES = []
IMAGE = {"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": 1, "deformable_groups": 1}


def case(name, x, kernel, size, grads="Input Offset Mask Filter", maker=f32, op="deformable_conv", **attrs):
    attrs = dict(IMAGE, im2col_step=1, **attrs)
    moved, elements = attrs["deformable_groups"], kernel[2] * kernel[3]
    inputs = {
        "Input": maker(*x),
        "Offset": maker(x[0], 2 * moved * elements, *size, low=-2.5, high=2.5),
        "Filter": maker(*kernel, salt=1),
    }
    if op == "deformable_conv":
        inputs["Mask"] = maker(x[0], moved * elements, *size, low=0)
    return Case(op, inputs, "Output", attrs, [grads, grads.replace(" Mask", "")]["Mask" not in inputs], name=name)


V1 = {"op": "deformable_conv_v1"}
CASES += [
    case("", (2, 3, 5, 6), (4, 3, 3, 3), (5, 6)),
    case("strides", (2, 4, 7, 6), (4, 4, 2, 3), (3, 8), strides=[2, 1], paddings=[0, 2], dilations=[2, 1]),
    case("groups", (2, 4, 4, 5), (6, 2, 3, 3), (4, 5), groups=2, deformable_groups=2),
    case("float64", (1, 2, 3, 4), (2, 2, 3, 3), (3, 4), "", f64),
    case("", (2, 3, 5, 6), (4, 3, 3, 3), (5, 6), **V1),
    case(
        "groups",
        (2, 4, 7, 6),
        (8, 1, 3, 2),
        (4, 6),
        strides=[2, 1],
        dilations=[1, 2],
        groups=4,
        deformable_groups=2,
        **V1,
    ),
]


@layer_case(CASES, x=f32(2, 4, 5, 5))
def moved_by_convolutions(fluid, x):
    layers = fluid.layers
    offset = layers.conv2d(x, 36, 3, padding=1)
    mask = layers.sigmoid(layers.conv2d(x, 18, 3, padding=1))
    second = layers.deformable_conv(x, offset, mask, 6, 3, padding=1, deformable_groups=2, groups=2, im2col_step=1)
    return second


@layer_case(CASES, x=f32(2, 4, 5, 5), offset=f32(2, 18, 5, 5))
def without_masks(fluid, x, offset):
    return fluid.layers.deformable_conv(
        x, offset, None, 6, 3, padding=1, modulated=False, im2col_step=1, name="first", bias_attr=False
    )
