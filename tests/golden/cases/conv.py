"""Convolutions, their transposes, and the layers made of them."""

from golden.case import Case, f32, f64, layer_case

CASES = []


def conv(op, x, w, name="", grads="Input Filter", **attrs):
    CASES.append(Case(op, {"Input": x, "Filter": w}, outputs="Output", attrs=attrs, grads=grads, name=name))


def two(op, *sizes, **attrs):
    """Images of n, c, h, w and filters of o, c / groups, h, w."""
    n, c, h, w, o, kh, kw = sizes
    conv(op, f32(n, c, h, w), f32(o, c // attrs.get("groups", 1), kh, kw, salt=1), **attrs)


# Every form that the rule may choose: by channels, kernel size and groups.
two("conv2d", 2, 1, 9, 8, 4, 5, 5, strides=[1, 1], paddings=[0, 0], dilations=[1, 1], name="one_channel")
two("conv2d", 2, 3, 9, 8, 4, 3, 3, strides=[2, 1], paddings=[1, 2], dilations=[1, 1], name="strided")
two("conv2d", 2, 6, 9, 8, 5, 3, 3, strides=[2, 2], paddings=[1, 1], dilations=[1, 1], name="few_channels")
two("conv2d", 2, 6, 9, 8, 5, 4, 5, strides=[1, 2], paddings=[2, 1], dilations=[1, 1], name="large_kernel")
two("conv2d", 1, 50, 5, 6, 7, 3, 3, strides=[1, 1], paddings=[1, 1], dilations=[1, 1], name="many_channels")
two("conv2d", 2, 4, 7, 7, 5, 1, 1, strides=[1, 1], paddings=[0, 0], dilations=[1, 1], name="pointwise")
two("conv2d", 2, 4, 7, 6, 5, 1, 1, strides=[2, 3], paddings=[1, 0], dilations=[1, 1], name="pointwise_strided")
two("conv2d", 2, 4, 7, 6, 6, 3, 2, strides=[1, 1], paddings=[1, 1], dilations=[1, 1], groups=2, name="groups")
two("conv2d", 2, 20, 5, 6, 30, 3, 3, strides=[2, 1], paddings=[1, 1], dilations=[1, 1], groups=10, name="many_groups")
two("conv2d", 2, 4, 7, 6, 4, 3, 3, strides=[1, 1], paddings=[1, 1], dilations=[1, 1], groups=4, name="depthwise")
two("conv2d", 1, 1, 12, 13, 2, 9, 10, strides=[1, 1], paddings=[0, 0], dilations=[1, 1], name="huge_kernel")
two(
    "conv2d", 1, 12, 12, 13, 12, 9, 10, strides=[1, 1], paddings=[1, 1], dilations=[1, 1], groups=12, name="huge_groups"
)
# Attributes.
two("conv2d", 2, 3, 9, 10, 4, 3, 2, strides=[1, 1], paddings=[1, 1], dilations=[2, 3], name="dilated")
two("conv2d", 2, 3, 11, 10, 4, 3, 2, strides=[2, 3], paddings=[2, 1], dilations=[2, 2], name="dilated_strided")
two("conv2d", 2, 3, 7, 8, 4, 3, 3, strides=[2, 2], paddings=[0, 1, 2, 0], dilations=[1, 1], name="asymmetric")
two("conv2d", 2, 6, 7, 8, 4, 3, 3, strides=[3, 3], paddings=[0, 0], dilations=[1, 1], name="unread_tail")
two(
    "conv2d",
    2,
    3,
    7,
    8,
    4,
    3,
    4,
    strides=[2, 3],
    paddings=[0, 0],
    dilations=[1, 1],
    padding_algorithm="SAME",
    name="same",
)
two(
    "conv2d",
    2,
    3,
    7,
    8,
    4,
    3,
    3,
    strides=[1, 1],
    paddings=[0, 0],
    dilations=[2, 2],
    padding_algorithm="SAME",
    name="same_dilated",
)
two(
    "conv2d",
    2,
    3,
    7,
    8,
    4,
    3,
    3,
    strides=[1, 1],
    paddings=[2, 2],
    dilations=[1, 1],
    padding_algorithm="VALID",
    name="valid",
)
conv(
    "conv2d",
    f32(2, 7, 8, 3),
    f32(4, 3, 3, 3),
    strides=[2, 1],
    paddings=[1, 0],
    dilations=[1, 1],
    data_format="NHWC",
    name="nhwc",
)
conv(
    "conv2d",
    f32(2, 7, 8, 4),
    f32(4, 2, 3, 3),
    strides=[1, 1],
    paddings=[1, 1],
    dilations=[1, 1],
    groups=2,
    data_format="NHWC",
    name="nhwc_groups",
)
conv("conv2d", f64(2, 3, 7, 8), f64(4, 3, 3, 3), strides=[2, 1], paddings=[1, 0], dilations=[1, 1], name="float64")
conv(
    "conv2d",
    f64(2, 4, 7, 8),
    f64(4, 1, 3, 3),
    strides=[2, 1],
    paddings=[1, 0],
    dilations=[1, 1],
    groups=4,
    name="float64_depthwise",
)
conv("conv2d", f32(2, 3, 5, 5), f32(2, 3, 5, 5), name="defaults")

two("depthwise_conv2d", 2, 4, 7, 6, 4, 3, 3, strides=[1, 1], paddings=[1, 1], dilations=[1, 1], groups=4)
two(
    "depthwise_conv2d", 2, 4, 7, 6, 4, 3, 2, strides=[2, 3], paddings=[1, 0], dilations=[1, 1], groups=4, name="strided"
)
two(
    "depthwise_conv2d",
    3,
    4,
    7,
    6,
    8,
    3,
    3,
    strides=[1, 1],
    paddings=[1, 1],
    dilations=[1, 1],
    groups=4,
    name="multiplied",
)
two(
    "depthwise_conv2d",
    3,
    4,
    7,
    6,
    8,
    3,
    3,
    strides=[2, 2],
    paddings=[0, 0],
    dilations=[1, 1],
    groups=4,
    name="multiplied_strided",
)
two(
    "depthwise_conv2d", 2, 4, 9, 8, 4, 3, 3, strides=[1, 1], paddings=[2, 2], dilations=[2, 2], groups=4, name="dilated"
)

conv("conv3d", f32(2, 3, 5, 6, 4), f32(4, 3, 3, 2, 3), strides=[1, 1, 1], paddings=[1, 0, 1], dilations=[1, 1, 1])
conv(
    "conv3d",
    f32(2, 4, 5, 6, 7),
    f32(4, 2, 3, 2, 3),
    strides=[2, 1, 2],
    paddings=[1, 0, 1],
    dilations=[1, 2, 1],
    groups=2,
    name="groups",
)
conv(
    "conv3d",
    f32(2, 5, 6, 7, 3),
    f32(4, 3, 2, 2, 2),
    strides=[2, 2, 2],
    paddings=[0, 1, 1, 0, 0, 0],
    dilations=[1, 1, 1],
    data_format="NDHWC",
    name="ndhwc",
)
conv(
    "conv3d",
    f64(1, 2, 4, 4, 4),
    f64(3, 2, 2, 2, 2),
    strides=[1, 1, 1],
    paddings=[0, 0, 0],
    dilations=[1, 1, 1],
    padding_algorithm="SAME",
    name="float64_same",
)

transposed = ("conv2d_transpose", f32(2, 3, 5, 4), f32(3, 4, 3, 3))
conv(*transposed, strides=[1, 1], paddings=[0, 0], dilations=[1, 1])
conv(*transposed, strides=[2, 3], paddings=[1, 0], dilations=[1, 1], name="strided")
conv(*transposed, strides=[2, 2], paddings=[1, 1], dilations=[2, 1], name="dilated")
conv(*transposed, strides=[2, 3], paddings=[1, 1], dilations=[1, 1], output_size=[10, 12], name="output_size")
conv(*transposed, strides=[2, 2], paddings=[1, 0, 0, 2], dilations=[1, 1], name="asymmetric")
conv(*transposed, strides=[2, 2], paddings=[1, 1], dilations=[1, 1], padding_algorithm="SAME", name="same")
conv(*transposed, strides=[2, 2], paddings=[1, 1], dilations=[1, 1], padding_algorithm="VALID", name="valid")
conv(
    "conv2d_transpose",
    f32(2, 4, 5, 4),
    f32(4, 3, 3, 2),
    strides=[2, 1],
    paddings=[1, 0],
    dilations=[1, 1],
    groups=2,
    name="groups",
)
conv(
    "conv2d_transpose",
    f32(2, 5, 4, 3),
    f32(3, 4, 3, 3),
    strides=[2, 2],
    paddings=[1, 1],
    dilations=[1, 1],
    data_format="NHWC",
    name="nhwc",
)
conv(
    "conv2d_transpose",
    f32(2, 6, 5, 4),
    f32(6, 9, 4, 4),
    strides=[2, 2],
    paddings=[1, 1],
    dilations=[1, 1],
    name="more_channels",
)
# Its gradient fails in real Fluid.
conv(
    "conv2d_transpose",
    f64(2, 3, 5, 4),
    f64(3, 4, 2, 2),
    strides=[2, 2],
    paddings=[0, 0],
    dilations=[1, 1],
    name="float64",
    grads="",
)
conv(
    "conv2d_transpose",
    f32(2, 3, 5, 4),
    f32(3, 4, 1, 1),
    strides=[2, 2],
    paddings=[0, 0],
    dilations=[1, 1],
    name="pointwise",
)
conv(
    "depthwise_conv2d_transpose",
    f32(2, 4, 5, 4),
    f32(4, 1, 3, 3),
    strides=[2, 1],
    paddings=[1, 0],
    dilations=[1, 1],
    groups=4,
)
conv(
    "depthwise_conv2d_transpose",
    f32(2, 4, 5, 4),
    f32(4, 1, 3, 3),
    strides=[1, 1],
    paddings=[1, 1],
    dilations=[1, 1],
    groups=4,
    name="unit_stride",
)
conv(
    "conv3d_transpose",
    f32(2, 3, 3, 4, 3),
    f32(3, 4, 2, 3, 2),
    strides=[2, 1, 2],
    paddings=[0, 1, 0],
    dilations=[1, 1, 1],
)
conv(
    "conv3d_transpose",
    f32(2, 4, 3, 4, 3),
    f32(4, 2, 2, 3, 2),
    strides=[2, 2, 2],
    paddings=[0, 1, 0],
    dilations=[1, 1, 1],
    groups=2,
    name="groups",
)


@layer_case(CASES, x=f32(2, 3, 8, 8))
def conv2d_with_relu(fluid, x):
    return fluid.layers.conv2d(x, num_filters=4, filter_size=3, padding=1, act="relu")


@layer_case(CASES, x=f32(2, 4, 8, 8))
def conv2d_grouped_without_bias(fluid, x):
    return fluid.layers.conv2d(x, 6, (3, 2), stride=(2, 1), padding=[1, 0], dilation=1, groups=2, bias_attr=False)


@layer_case(CASES, x=f32(2, 4, 8, 8))
def conv2d_of_each_channel(fluid, x):
    layers = fluid.layers
    return [
        layers.conv2d(x, 8, 3, groups=4, use_cudnn=False),
        layers.conv2d(x, 8, 3, groups=4),
        layers.conv2d(x, 6, 3, groups=2, use_cudnn=False),
    ]


@layer_case(CASES, x=f32(2, 3, 9, 8))
def conv2d_paddings(fluid, x):
    conv2d = fluid.layers.conv2d
    return [
        conv2d(x, 2, 3, stride=2, padding="same"),
        conv2d(x, 2, 3, padding="VALID"),
        conv2d(x, 2, 3, padding=[1, 0, 2, 1]),
        conv2d(x, 2, 3, padding=[[0, 0], [0, 0], [1, 1], [2, 1]]),
        conv2d(x, 2, 3, padding=[[0, 0], [0, 0], [2, 2], [1, 1]]),
    ]


@layer_case(CASES, x=f32(2, 8, 7, 3))
def conv2d_channels_last(fluid, x):
    return fluid.layers.conv2d(x, 4, 3, padding=[[0, 0], [1, 1], [0, 1], [0, 0]], act="tanh", data_format="NHWC")


@layer_case(CASES, x=f32(2, 3, 8, 8))
def conv2d_with_named_parameters(fluid, x):
    return fluid.layers.conv2d(x, 4, 3, param_attr=fluid.ParamAttr(name="filters"), bias_attr="shift", name="eyes")


@layer_case(CASES, x=f32(2, 3, 5, 6, 4))
def conv3d_with_relu(fluid, x):
    conv3d = fluid.layers.conv3d
    return [
        conv3d(x, 4, 3, padding=1, act="relu"),
        conv3d(x, 3, (2, 3, 1), stride=(2, 1, 1), groups=3),
        conv3d(x, 2, 2, padding="SAME", dilation=2),
    ]


@layer_case(CASES, x=f32(2, 5, 6, 4, 3))
def conv3d_channels_last(fluid, x):
    return fluid.layers.conv3d(x, 2, 2, padding=[[0, 0], [1, 0], [0, 0], [1, 1], [0, 0]], data_format="NDHWC")


@layer_case(CASES, x=f32(2, 3, 5, 6))
def conv2d_transpose_by_filter_size(fluid, x):
    up = fluid.layers.conv2d_transpose
    return [
        up(x, 4, filter_size=3, stride=2, padding=1),
        up(x, 4, filter_size=(2, 3), act="relu", bias_attr=False),
        up(x, 6, filter_size=3, groups=3, dilation=2),
        up(x, 2, filter_size=3, padding=[1, 0, 1, 2], stride=2),
    ]


@layer_case(CASES, x=f32(2, 3, 5, 6))
def conv2d_transpose_by_output_size(fluid, x):
    up = fluid.layers.conv2d_transpose
    return [up(x, 4, output_size=12, stride=2, padding=1), up(x, 4, output_size=[12, 14], filter_size=4, stride=2)]


@layer_case(CASES, x=f32(2, 4, 5, 6))
def conv2d_transpose_of_each_channel(fluid, x):
    return fluid.layers.conv2d_transpose(x, 4, filter_size=3, groups=4, use_cudnn=False)


@layer_case(CASES, x=f32(2, 5, 6, 3))
def conv2d_transpose_channels_last(fluid, x):
    return fluid.layers.conv2d_transpose(x, 4, filter_size=3, stride=2, padding="SAME", data_format="NHWC")


@layer_case(CASES, x=f32(2, 3, 3, 4, 3))
def conv3d_transpose_both_ways(fluid, x):
    up = fluid.layers.conv3d_transpose
    return [up(x, 2, filter_size=2, stride=2, act="relu"), up(x, 2, output_size=[7, 8, 6], stride=2)]
