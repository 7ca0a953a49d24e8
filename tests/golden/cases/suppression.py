"""multiclass_nms and its sisters, and the outputs of detectors."""

import numpy as np

from golden.case import Case, Lod, f32, f64, ints, layer_case

CASES = []


def boxes(*shape, **options):
    """Boxes with corners in order, many of which overlap."""
    maker, size = options.get("maker", f32), options.get("size", 4.0)
    corner = maker(*shape + (2,), low=0, high=size, salt=1)
    return np.concatenate([corner, corner + maker(*shape + (2,), low=0.5, high=size, salt=2)], -1)


ATTRS = {"score_threshold": 0.2, "nms_top_k": 6, "keep_top_k": 5, "nms_threshold": 0.4}
NMS = {"BBoxes": boxes(2, 9), "Scores": f32(2, 3, 9, low=0)}
TIED = {
    "BBoxes": ints(2, 6, 4, high=3).astype("float32") + np.array([0, 0, 2, 2], "float32"),
    "Scores": ints(2, 3, 6, high=4).astype("float32") / 4,
}


def nms(op, name, inputs=NMS, outputs="Out", **attrs):
    return Case(op, inputs, outputs, dict(ATTRS, **attrs), name=name)


PER_CLASS = {"BBoxes": Lod(boxes(8, 3), [[3, 5]]), "Scores": Lod(f32(8, 3, low=0), [[3, 5]])}
QUADS = {
    "BBoxes": np.array(
        [[0, 0, 9, 1, 8, 9, 1, 7], [1, 0, 11, 0, 11, 10, 1, 10], [30, 30, 35, 28, 40, 35, 32, 41]]
        + [[0, 10, 10, 10, 11, 0, 1, 1], [31, 30, 36, 34, 41, 30, 36, 44], [30, 30, 41, 30, 41, 36, 30, 36]],
        "float32",
    )[None],
    "Scores": f32(1, 2, 6, low=0.2),
}
SOME = np.zeros((2, 2, 9), "float32")
SOME[1, 1, 3] = 0.9

for op, outputs in (("multiclass_nms", "Out"), ("multiclass_nms2", "Out Index")):
    CASES += [
        nms(op, "", outputs=outputs),
        nms(op, "all", outputs=outputs, nms_top_k=-1, keep_top_k=-1, background_label=-1, score_threshold=0.0),
        nms(op, "pixels", outputs=outputs, normalized=False, background_label=2),
        nms(op, "eta", outputs=outputs, nms_threshold=0.8, nms_eta=0.7, keep_top_k=-1),
        nms(op, "ties", TIED, outputs, nms_threshold=0.5),
        nms(op, "ties_pixels", TIED, outputs, normalized=False, keep_top_k=3),
        nms(op, "per_class", PER_CLASS, outputs),
        nms(op, "one_image_without", {"BBoxes": NMS["BBoxes"], "Scores": SOME}, outputs),
    ]
CASES += [
    nms("multiclass_nms", "nothing", {"BBoxes": NMS["BBoxes"], "Scores": SOME * 0}),
    nms("multiclass_nms", "only_background", {"BBoxes": NMS["BBoxes"], "Scores": f32(2, 1, 9, low=0)}),
    nms("multiclass_nms", "polygons", QUADS, background_label=-1, nms_threshold=0.3),
    nms("multiclass_nms", "float64", {"BBoxes": boxes(2, 9, maker=f64), "Scores": f64(2, 3, 9, low=0)}),
    nms("locality_aware_nms", "", background_label=-1),
    nms("locality_aware_nms", "pixels", normalized=False, nms_threshold=0.2, keep_top_k=-1, nms_top_k=-1),
    nms("locality_aware_nms", "nothing", {"BBoxes": NMS["BBoxes"], "Scores": SOME * 0}),
    nms("locality_aware_nms", "polygons", QUADS, background_label=-1),
]


def matrix(name, inputs=NMS, **attrs):
    options = {"score_threshold": 0.2, "post_threshold": 0.1, "nms_top_k": 6, "keep_top_k": 5}
    return Case("matrix_nms", inputs, "Out Index", dict(options, **attrs), name=name)


CASES += [
    matrix(""),
    matrix("gaussian", use_gaussian=True, gaussian_sigma=0.7, keep_top_k=-1, post_threshold=0.0),
    matrix("pixels", normalized=False, background_label=-1, nms_top_k=-1, keep_top_k=7),
]

LEVELS = (6, 4)


def retinanet(name, **attrs):
    inputs = {
        "BBoxes": [f32(2, n, 4, salt=3) * 0.5 for n in LEVELS],
        "Scores": [f32(2, n, 3, low=0, salt=4) for n in LEVELS],
        "Anchors": [boxes(n, size=20.0) for n in LEVELS],
        "ImInfo": np.array([[30, 25, 1], [45, 40.5, 1.5]], "float32"),
    }
    options = {"score_threshold": 0.5, "nms_top_k": 5, "keep_top_k": 7, "nms_threshold": 0.3, "nms_eta": 1.0}
    return Case("retinanet_detection_output", inputs, "Out", dict(options, **attrs), name=name)


CASES += [
    retinanet(""),
    retinanet("many", nms_top_k=1000, keep_top_k=100, nms_threshold=0.7, nms_eta=0.8),
    retinanet("last_level", score_threshold=1.0, nms_threshold=0.5),
]

TRUTH = np.array(
    [[1, 0, 0.1, 0.1, 0.4, 0.5], [1, 1, 0.5, 0.5, 0.9, 0.9], [2, 0, 0.2, 0.6, 0.5, 0.9], [2, 0, 0, 0, 1, 1]]
    + [[3, 0, 0.3, 0.3, 0.6, 0.6], [1, 0, 0.6, 0.1, 0.9, 0.4]],
    "float32",
)
FOUND = np.array(
    [[1, 0.6, 0.1, 0.1, 0.45, 0.5], [1, 0.9, 0.5, 0.52, 0.9, 0.9], [1, 0.3, 0.12, 0.1, 0.4, 0.45]]
    + [[3, 0.4, 0.1, 0.1, 0.4, 0.5], [3, 0.8, 0.1, 0.1, 0.4, 0.5], [2, 0.7, 0.05, -0.2, 1.3, 1]]
    + [[2, 0.2, 0.2, 0.6, 0.5, 0.9], [1, 0.5, 0.6, 0.15, 0.9, 0.4]],
    "float32",
)
STATE = {
    "HasState": np.array([1], "int32"),
    "PosCount": np.array([[0], [2], [1], [3]], "int32"),
    "TruePos": Lod(np.array([[0.9, 1], [0.8, 0], [0.3, 1]], "float32"), [[0, 2, 0, 1]]),
    "FalsePos": Lod(np.array([[0.9, 0], [0.8, 1], [0.3, 0]], "float32"), [[0, 2, 0, 1]]),
}
# Not what TruePos leaves over.
MISSED = Lod(np.array([[0.95, 1], [0.1, 1], [0.5, 1]], "float32"), [[0, 2, 0, 1]])


def precision(name, label=TRUTH, more=None, **attrs):
    inputs = dict({"DetectRes": Lod(FOUND, [[5, 3]]), "Label": Lod(label, [[3, 3]])}, **more or {})
    outputs = "MAP AccumPosCount AccumTruePos AccumFalsePos"
    return Case("detection_map", inputs, outputs, dict({"class_num": 4}, **attrs), name=name)


CASES += [
    precision(""),
    precision("11point", ap_type="11point", overlap_threshold=0.3),
    precision("without_difficult", evaluate_difficult=False),
    precision("five_columns", label=np.delete(TRUTH, 1, 1)),
    precision("background", background_label=1),  # which is the number of objects of class 3
    precision("state", more=STATE),
    precision("state_of_its_own", more=dict(STATE, FalsePos=MISSED)),
    precision("state_that_does_not_count", more=dict(STATE, HasState=np.array([0], "int32"))),
]


@layer_case(CASES, grads=False, place=f32(2, 8, 4), score=f32(2, 8, 3) * 2, prior=boxes(8, size=0.5))
def output_of_ssd(fluid, place, score, prior):
    four = [0.1, 0.1, 0.2, 0.2]
    out = fluid.layers.detection_output(place, score, prior, four, score_threshold=0.2, keep_top_k=6)
    return [out] + list(fluid.layers.detection_output(place, score, prior, four, nms_eta=0.9, return_index=True))


@layer_case(CASES, grads=False, box=boxes(2, 9), score=f32(2, 3, 9, low=0))
def every_suppression(fluid, box, score):
    layers = fluid.layers
    plain = layers.multiclass_nms(box, score, 0.2, 6, 5, name="kept")
    merged = layers.locality_aware_nms(box, layers.slice(score, [1], [0], [1]), 0.2, 6, 5)
    decayed = layers.matrix_nms(box, score, 0.2, 0.1, 6, 5)
    counted = fluid.contrib.layers.multiclass_nms2(box, score, 0.2, 6, 5, return_index=True)
    return (
        [plain, merged, decayed]
        + list(counted)
        + list(layers.matrix_nms(box, score, 0.2, 0.1, 6, 5, True, return_index=True))
    )


@layer_case(
    CASES,
    grads=False,
    box=f32(2, 6, 4),
    score=f32(2, 6, 3, low=0),
    anchor=boxes(6, size=20.0),
    info=np.array([[30, 25, 1], [45, 40.5, 1.5]], "float32"),
)
def output_of_retinanet(fluid, box, score, anchor, info):
    more = [fluid.layers.scale(each, 0.5) for each in (box, score)]
    return fluid.layers.retinanet_detection_output([box, more[0]], [score, more[1]], [anchor, anchor], info)


@layer_case(
    CASES,
    grads=False,
    found=Lod(FOUND, [[5, 3]]),
    label=Lod(TRUTH[:, :1].astype("int32"), [[3, 3]]),
    box=Lod(TRUTH[:, 2:], [[3, 3]]),
    difficult=Lod(TRUTH[:, 1:2], [[3, 3]]),
)
def precision_so_far(fluid, found, label, box, difficult):
    metric = fluid.metrics.DetectionMAP(
        found, label, box, difficult, class_num=4, evaluate_difficult=False, ap_version="11point"
    )
    truth = fluid.layers.concat([fluid.layers.cast(label, "float32"), box], axis=1)
    return list(metric.get_map_var()) + [fluid.layers.detection.detection_map(found, truth, 4)]
