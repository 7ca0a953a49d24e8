"""prior_box, density_prior_box, anchor_generator, polygon_box_transform, box_decoder_and_assign."""

import numpy as np

from golden.case import Case, Lod, f32, f64, layer_case

CASES = []
MAP, IMAGE = f32(2, 4, 2, 3), f32(2, 3, 20, 31)
VARIANCE = {"variances": [0.1, 0.1, 0.2, 0.2]}


def case(op, name, outputs="Boxes Variances", **attrs):
    return Case(op, {"Input": MAP, "Image": IMAGE}, outputs, dict(VARIANCE, **attrs), name=name)


SIZES = {"min_sizes": [4.0, 6.0], "max_sizes": [9.0, 10.0], "aspect_ratios": [1.0, 2.0, 2.0000005, 0.5, 3.0]}
DENSITY = {"densities": [3, 1, 2], "fixed_sizes": [8.0, 5.0, 30.0], "fixed_ratios": [1.0, 0.5]}
ANCHORS = {"anchor_sizes": [32.0, 50.0], "aspect_ratios": [0.5, 1.0, 2.0], "stride": [16.0, 10.0]}
CASES += [
    case("prior_box", "flip", flip=True, clip=False, **SIZES),
    case("prior_box", "caffe_order", flip=True, clip=True, min_max_aspect_ratios_order=True, offset=0.3, **SIZES),
    case("prior_box", "steps", flip=False, clip=False, step_w=7.0, step_h=9.0, **SIZES),
    case("prior_box", "one_step", flip=False, clip=False, step_w=7.0, min_sizes=[5.0], aspect_ratios=[]),
    case("density_prior_box", "", clip=False, **DENSITY),
    case("density_prior_box", "steps", clip=True, step_w=7.0, step_h=10.0, offset=0.3, flatten_to_2d=True, **DENSITY),
    Case("anchor_generator", {"Input": MAP}, "Anchors Variances", dict(VARIANCE, offset=0.5, **ANCHORS)),
    Case("anchor_generator", {"Input": MAP}, "Anchors Variances", dict(VARIANCE, offset=0.0, **ANCHORS), name="offset"),
    Case(
        "prior_box",
        {"Input": f64(1, 2, 2, 3), "Image": f64(1, 3, 20, 31)},
        "Boxes Variances",
        dict(SIZES, **VARIANCE),
        name="float64",
    ),
    Case(
        "anchor_generator", {"Input": f64(1, 2, 2, 3)}, "Anchors Variances", dict(ANCHORS, **VARIANCE), name="float64"
    ),
    Case(
        "density_prior_box",
        {"Input": f64(1, 2, 2, 3), "Image": f64(1, 3, 20, 31)},
        "Boxes Variances",
        dict(DENSITY, **VARIANCE),
        name="float64",
    ),
    Case("polygon_box_transform", {"Input": f32(2, 4, 2, 3)}, "Output"),
    Case("polygon_box_transform", {"Input": f64(1, 2, 3, 2)}, "Output", name="float64"),
]

BOXES = np.array([[0, 0, 2, 2], [1, 1, 4, 3], [1, 1, 1, 1], [2, 0, 7, 9]], "float32")
FOUR = np.array([0.1, 0.2, 0.3, 0.4], "float32")
LOW = np.array([[0, 0], [0, -1], [0, -3], [9, -0.5]], "float32")


def decoder(name, prior, target, score, bound):
    inputs = {"PriorBox": prior, "PriorBoxVar": FOUR, "TargetBox": target, "BoxScore": score}
    return Case("box_decoder_and_assign", inputs, "DecodeBox OutputAssignBox", {"box_clip": bound}, name=name)


CASES += [
    decoder("sequences", Lod(BOXES, [[1, 3]]), Lod(f32(4, 12), [[1, 3]]), Lod(f32(4, 3), [[4]]), 0.2),
    decoder("low_scores", BOXES, f32(4, 8), LOW, 4.135),
    decoder("background_only", BOXES, f32(4, 4), f32(4, 1), 4.135),
]


@layer_case(CASES, grads=False, x=MAP, image=IMAGE)
def priors_of_ssd(fluid, x, image):
    layers = fluid.layers
    boxes, variances = layers.prior_box(x, image, [4.0, 6.0], [9.0, 10.0], [1.0, 2.0], flip=True, clip=True)
    one, _ = layers.prior_box(x, image, 4.0, steps=[3.0, 4.0], name="one", min_max_aspect_ratios_order=True)
    dense, flat = layers.density_prior_box(x, image, [2, 1], [4.0, 9.0], [1.0], flatten_to_2d=True)
    # Constants may be reshaped by constants.
    rows = layers.reshape(boxes, [-1, 4])
    return [boxes, variances, one, dense, flat, layers.concat([rows, layers.reshape(one, [-1, 4])], axis=0)]


def cut(array):
    return Lod(array, [[3, 1]])


@layer_case(CASES, grads=False, x=MAP, prior=cut(BOXES), four=FOUR, codes=cut(f32(4, 12)), scores=cut(f32(4, 3)))
def boxes_of_two_stages(fluid, x, prior, four, codes, scores):
    layers = fluid.layers
    anchors, variances = layers.anchor_generator(x, [64.0, 128], (0.5, 1.0), stride=[16.0, 16.0], name="anchors")
    decoded, assigned = layers.box_decoder_and_assign(prior, four, codes, scores, 4.135)
    return [anchors, variances, decoded, assigned, layers.sequence_pool(assigned, "sum")]


@layer_case(CASES, grads=False, x=f32(2, 8, 2, 3))
def corners_of_polygons(fluid, x):
    return fluid.layers.polygon_box_transform(x, name="corners")


@layer_case(CASES, a=f32(2, 4, 4, 4), b=f32(2, 3, 2, 3), c=f32(2, 2, 1, 1), image=f32(2, 3, 32, 32))
def head_of_ssd(fluid, a, b, c, image):
    ratios = [[2.0], [2.0, 3.0], [2.0]]
    return list(fluid.layers.multi_box_head([a, b, c], image, 32, 3, ratios, min_ratio=20, max_ratio=90))


@layer_case(CASES, a=f32(2, 4, 4, 4), b=f32(2, 3, 2, 3), image=f32(2, 3, 32, 32))
def head_of_ssd_with_sizes(fluid, a, b, image):
    return list(
        fluid.layers.multi_box_head(
            inputs=[a, b],
            image=image,
            base_size=32,
            num_classes=3,
            aspect_ratios=[2.0, [2.0, 3.0]],
            min_sizes=[[10.0, 4.0], 20.0],
            max_sizes=[[20.0, 9.0], 30.0],
            steps=[8.0, 16.0],
            kernel_size=3,
            pad=1,
            flip=False,
            clip=True,
            min_max_aspect_ratios_order=True,
        )
    )
