"""yolo_box, yolov3_loss, sigmoid_focal_loss."""

import numpy as np

from golden.case import Case, Lod, f32, f64, layer_case

CASES = []
CLASSES = 3
BOX = {"anchors": [10, 13, 16, 30], "class_num": CLASSES, "conf_thresh": 0.4, "downsample_ratio": 32}
MAP, SIZE = f32(2, 2 * (5 + CLASSES), 3, 3, low=-2, high=2), np.array([[40, 50], [64, 96]], "int32")


def boxes(name, x, size, **attrs):
    return Case("yolo_box", {"X": x, "ImgSize": size}, "Boxes Scores", dict(BOX, **attrs), name=name)


CASES += [
    boxes("", MAP, SIZE),
    boxes("not_clipped", MAP, SIZE, clip_bbox=False, scale_x_y=1.2, conf_thresh=0.0),
    boxes("float64", f64(1, 16, 3, 3), SIZE[:1], downsample_ratio=16),
]

LOSS = {
    "anchors": [10, 13, 16, 30, 33, 23],
    "anchor_mask": [0, 2],
    "class_num": CLASSES,
    "ignore_thresh": 0.3,
    "downsample_ratio": 32,
}
# Among them: two in the same cell, some that are no objects, one whose anchor belongs to another map.
TRUTH = np.array(
    [
        [[0.5, 0.5, 0.3, 0.4], [0.45, 0.55, 0.3, 0.4], [0.1, 0.9, 0.2, 0.1], [0.7, 0.2, 0.18, 0.35], [0, 0, 0, 0]],
        [
            [0.5, 0.5, 9e-7, 0.5],
            [0.5, 0.5, 1.1e-6, 0.5],
            [0.5, 0.5, -0.5, 0.5],
            [0.9, 0.1, 0.9, 0.6],
            [0.2, 0.3, 0.1, 0.1],
        ],
    ],
    "float32",
)
LABEL = np.array([[0, 2, 1, 1, 0], [2, 1, 0, 2, 2]], "int32")
SCORE = np.array([[0.3, 0.5, 1.0, 0.7, 0.2], [1.0, 0.0, 1.0, 0.4, 0.9]], "float32")


def loss(name, x, score=None, truth=TRUTH, grads="X", **attrs):
    inputs = {"X": x, "GTBox": truth, "GTLabel": LABEL[: len(x)]}
    if score is not None:
        inputs["GTScore"] = score
    return Case("yolov3_loss", inputs, "Loss ObjectnessMask GTMatchMask", dict(LOSS, **attrs), grads, name=name)


CASES += [
    loss("plain", MAP, use_label_smooth=False),
    loss("smooth", MAP, use_label_smooth=True, ignore_thresh=0.7),
    loss("scores", MAP, SCORE, use_label_smooth=True, scale_x_y=1.2),
    loss(
        "float64",
        f64(1, 16, 2, 2),
        truth=TRUTH[:1].astype("float64"),
        grads="",
        anchor_mask=[1, 2],
        downsample_ratio=16,
    ),
]


def focal(name, x, label, count, grads="X", **attrs):
    inputs = {"X": x, "Label": label, "FgNum": np.array([count], "int32")}
    return Case("sigmoid_focal_loss", inputs, attrs=attrs, grads=grads, name=name)


LABELS = np.array([[0], [1], [3], [-1]], "int32")
FAR = np.array([[100, -100], [-100, 100], [30, -30], [-80, 80]], "float32")
CASES += [
    focal("", f32(4, 3, low=-3, high=3), LABELS, 2, gamma=2.0, alpha=0.25),
    focal("no_objects", f32(4, 3, low=-3, high=3), LABELS, 0, gamma=1.5, alpha=0.4),
    focal("far", FAR, np.array([[1], [1], [2], [0]], "int32"), 3, gamma=0.5, alpha=0.4),
    focal("sequences", Lod(f32(4, 3), [[1, 3]]), Lod(LABELS, [[1, 3]]), 2, gamma=2.0, alpha=0.25),
    focal("float64", f64(4, 3), LABELS, 1, "", gamma=0.0, alpha=1.0),
]


@layer_case(CASES, x=MAP, size=SIZE, box=TRUTH, label=LABEL, score=SCORE)
def yolo(fluid, x, size, box, label, score):
    layers = fluid.layers
    box.stop_gradient = score.stop_gradient = True
    x = layers.conv2d(x, 16, 1)
    mixed = layers.yolov3_loss(x, box, label, LOSS["anchors"], [0, 1], CLASSES, 0.7, 32, gt_score=score, name="mixed")
    plain = layers.yolov3_loss(x, box, label, LOSS["anchors"], (1, 2), CLASSES, 0.7, 32, use_label_smooth=False)
    return [mixed, plain]


@layer_case(CASES, grads=False, x=MAP, size=SIZE)
def boxes_of_yolo(fluid, x, size):
    return list(fluid.layers.yolo_box(x, size, [10, 13, 16, 30], CLASSES, 0.01, 32, name="boxes"))


@layer_case(CASES, x=f32(4, 5), label=LABELS, count=np.array([2], "int32"))
def focal_loss(fluid, x, label, count):
    return fluid.layers.sigmoid_focal_loss(fluid.layers.fc(x, 3), label, count, gamma=2.0, alpha=0.5)
