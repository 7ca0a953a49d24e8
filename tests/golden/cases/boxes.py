"""iou_similarity, box_coder, box_clip."""

import numpy as np

from golden.case import Case, Lod, f32, f64, layer_case

CASES = []


def boxes(rows, salt=0, size=20.0, maker=f32):
    """Boxes with corners in order."""
    corner = maker(rows, 2, low=0, high=size, salt=salt)
    return np.concatenate([corner, corner + maker(rows, 2, low=0.5, high=size / 2, salt=salt + 1)], 1)


# Without area, with corners in the wrong order, and small enough for what is added to unions to matter.
ODD = np.array([[1, 1, 1, 1], [3, 3, 2.5, 2.5], [2, 2, 1, 5], [0, 0, 1e-5, 1e-5]], "float32")
VARIANCE = f32(3, 4, low=0.1, high=0.4)

CASES += [
    Case("iou_similarity", {"X": Lod(boxes(7), [[3, 0, 4]]), "Y": boxes(5, salt=2)}),
    Case("iou_similarity", {"X": Lod(boxes(4), [[1, 1], [1, 3]]), "Y": boxes(2, salt=2)}, name="nested"),
    Case("iou_similarity", {"X": boxes(3), "Y": boxes(4, 2)}, attrs={"box_normalized": False}, name="pixels"),
    Case("iou_similarity", {"X": ODD, "Y": ODD}, name="odd"),
    Case("iou_similarity", {"X": ODD, "Y": ODD}, attrs={"box_normalized": False}, name="odd_pixels"),
    Case("iou_similarity", {"X": boxes(3, maker=f64), "Y": boxes(2, 2, maker=f64)}, name="float64"),
]


def coder(name, inputs, code_type, **attrs):
    return Case("box_coder", inputs, "OutputBox", dict(attrs, code_type=code_type), name=name)


ENCODE, DECODE = "encode_center_size", "decode_center_size"
PRIORS = {"PriorBox": boxes(3, 1), "PriorBoxVar": VARIANCE}
CODES = f32(2, 3, 4)
CASES += [
    coder("encode", dict(PRIORS, TargetBox=Lod(boxes(5), [[2, 0, 3]])), ENCODE),
    coder("encode_pixels", dict(PRIORS, TargetBox=boxes(2)), ENCODE, box_normalized=False),
    coder(
        "encode_four", {"PriorBox": boxes(3, 1), "TargetBox": boxes(2)}, ENCODE, variance=[0.1, 0.2, 0.3, 0.4], axis=1
    ),
    coder("encode_plain", {"PriorBox": boxes(3, 1), "TargetBox": ODD[1:]}, ENCODE),
    coder("decode", dict(PRIORS, TargetBox=Lod(CODES, [[1, 1]])), DECODE),
    coder("decode_pixels", dict(PRIORS, TargetBox=CODES), DECODE, box_normalized=False),
    coder(
        "decode_rows_of_both",
        {"PriorBox": Lod(boxes(3, 1), [[1, 2]]), "TargetBox": Lod(f32(3, 2, 4), [[3]])},
        DECODE,
        axis=1,
    ),
    coder("decode_rows", dict(PRIORS, TargetBox=f32(3, 2, 4)), DECODE, axis=1, box_normalized=False),
    coder(
        "decode_rows_of_sequences",
        {"PriorBox": Lod(boxes(3, 1), [[1, 2]]), "TargetBox": f32(3, 2, 4)},
        DECODE,
        axis=1,
        variance=[0.1, 0.2, 0.3, 0.4],
    ),
    coder("decode_four", {"PriorBox": boxes(3, 1), "TargetBox": CODES}, DECODE, variance=[0.1, 0.2, 0.3, 0.4]),
    coder("decode_plain", {"PriorBox": boxes(3, 1, maker=f64), "TargetBox": f64(2, 3, 4)}, DECODE),
]

IM_INFO = np.array([[20.4, 10, 1], [15, 25, 1.5], [4.5, 0.5, 1]], "float32")
CASES += [
    Case("box_clip", {"Input": Lod(f32(6, 4, low=-5, high=30), [[2, 3, 1]]), "ImInfo": IM_INFO}, "Output"),
    Case(
        "box_clip", {"Input": Lod(f32(4, 3, 4, low=-5, high=30), [[1, 3]]), "ImInfo": IM_INFO[1:]}, "Output", name="3d"
    ),
    Case(
        "box_clip",
        {"Input": Lod(f64(3, 4, low=-5, high=30), [[3]]), "ImInfo": IM_INFO[:1].astype("float64")},
        "Output",
        name="float64",
    ),
]


@layer_case(CASES, grads=False, truth=Lod(boxes(5), [[2, 3]]), priors=boxes(3, 1), variance=VARIANCE, info=IM_INFO[:2])
def boxes_and_priors(fluid, truth, priors, variance, info):
    layers = fluid.layers
    overlaps = layers.iou_similarity(x=truth, y=priors)
    codes = layers.box_coder(priors, variance, truth)
    back = layers.box_coder(priors, variance, codes, code_type=DECODE, name="back")
    # Padding of sequences must stay out of what follows.
    return [overlaps, codes, layers.box_clip(back, info), layers.sequence_pool(overlaps, "max")]


@layer_case(CASES, grads=False, truth=boxes(2), priors=boxes(3, 1))
def boxes_of_pixels(fluid, truth, priors):
    four, layers = [0.1, 0.1, 0.2, 0.2], fluid.layers
    codes = layers.box_coder(priors, four, truth, box_normalized=False)
    rows = layers.box_coder(truth, four, codes, code_type=DECODE, box_normalized=False, axis=1)
    return [codes, rows, layers.detection.iou_similarity(truth, priors, box_normalized=False)]
