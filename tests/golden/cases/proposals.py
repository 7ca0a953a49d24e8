"""Targets of anchors, region proposals and their labels, levels of feature pyramids."""

import numpy as np

from golden.case import Case, Lod, distinct, f32, ints, layer_case

CASES = []


def boxes(rows, salt=0, size=12.0, whole=False):
    """Boxes of pixels; many are equal if they are whole."""
    corner = f32(rows, 2, low=-1, high=size, salt=salt)
    both = np.concatenate([corner, corner + f32(rows, 2, low=1, high=size, salt=salt + 1)], 1)
    return np.round(both) if whole else both


LENGTHS = [2, 1, 3]
TRUTH = Lod(np.maximum(boxes(6, 5), 0), [LENGTHS])
CROWD = Lod(np.array([[0], [1], [0], [0], [1], [0]], "int32"), [LENGTHS])
CLASSES = Lod(np.array([[1], [2], [3], [2], [1], [3]], "int32"), [LENGTHS])
INFO = np.array([[20, 18, 1], [25, 22, 1.5], [16, 24, 0.7]], "float32")
ANCHORS = boxes(20)
TARGETS = "LocationIndex ScoreIndex TargetLabel TargetBBox BBoxInsideWeight"


def rpn(name, anchors=ANCHORS, truth=TRUTH, **attrs):
    inputs = {"Anchor": anchors, "GtBoxes": truth, "IsCrowd": CROWD, "ImInfo": INFO}
    options = {
        "rpn_batch_size_per_im": 6,
        "rpn_straddle_thresh": 1.0,
        "rpn_positive_overlap": 0.4,
        "rpn_negative_overlap": 0.2,
        "rpn_fg_fraction": 0.5,
        "use_random": False,
    }
    return Case("rpn_target_assign", inputs, TARGETS, dict(options, **attrs), name=name)


WHOLE = Lod(np.round(TRUTH.array), [LENGTHS])
CASES += [
    rpn(""),
    rpn("any_place", rpn_straddle_thresh=-1.0),
    rpn("many", rpn_batch_size_per_im=256, rpn_straddle_thresh=-1.0),
    rpn("few", rpn_batch_size_per_im=4, rpn_fg_fraction=0.25, rpn_straddle_thresh=-1.0),
    rpn("ties", boxes(20, whole=True), WHOLE, rpn_straddle_thresh=-1.0, rpn_fg_fraction=1.0),
    # An object that no anchor overlaps with: all anchors are as near to it as any.
    rpn("far", truth=Lod(TRUTH.array + np.float32(40), [LENGTHS]), rpn_straddle_thresh=-1.0),
]


def retinanet(name, anchors=ANCHORS, truth=TRUTH, **attrs):
    inputs = {"Anchor": anchors, "GtBoxes": truth, "GtLabels": CLASSES, "IsCrowd": CROWD, "ImInfo": INFO}
    return Case("retinanet_target_assign", inputs, TARGETS + " ForegroundNumber", attrs, name=name)


CASES += [
    retinanet(""),
    retinanet("low", positive_overlap=0.3, negative_overlap=0.3),
    retinanet("ties", boxes(20, whole=True), WHOLE, positive_overlap=0.3, negative_overlap=0.2),
]


def proposals(name, scores=distinct(2, 3, 3, 2), **attrs):
    height, width = scores.shape[2:]
    corner = f32(height, width, 3, 2, low=-3, high=14)
    inputs = {
        "Scores": scores,
        "BboxDeltas": f32(2, 12, height, width) * np.float32(attrs.pop("spread", 1.0)),
        "ImInfo": INFO[:2],
        "Anchors": np.concatenate([corner, corner + f32(height, width, 3, 2, low=2, high=14, salt=1)], -1),
        "Variances": f32(height, width, 3, 4, low=0.1, high=1.0),
    }
    options = {"pre_nms_topN": 12, "post_nms_topN": 5, "nms_thresh": 0.4, "min_size": 2.0, "eta": 1.0}
    outputs = "RpnRois RpnRoiProbs RpnRoisLod"
    return Case("generate_proposals", inputs, outputs, dict(options, **attrs), name=name)


CASES += [
    proposals(""),
    proposals("all", pre_nms_topN=-1, post_nms_topN=100, nms_thresh=0.7, min_size=0.0),
    proposals("eta", pre_nms_topN=100, post_nms_topN=100, nms_thresh=0.9, eta=0.8),
    proposals("far", spread=6.0),
    proposals("large", min_size=9.0),
    proposals("ties", scores=ints(2, 3, 2, 2, high=3).astype("float32"), pre_nms_topN=-1),
]

REGIONS = Lod(np.maximum(boxes(16, 9), 0), [[5, 4, 7]])


def labels(name, regions=REGIONS, **attrs):
    inputs = {"RpnRois": regions, "GtClasses": CLASSES, "IsCrowd": CROWD, "GtBoxes": TRUTH, "ImInfo": INFO}
    options = {
        "batch_size_per_im": 6,
        "fg_fraction": 0.5,
        "fg_thresh": 0.35,
        "bg_thresh_hi": 0.35,
        "bg_thresh_lo": 0.0,
        "bbox_reg_weights": [0.1, 0.1, 0.2, 0.2],
        "class_nums": 4,
        "use_random": False,
    }
    outputs = "Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights"
    return Case("generate_proposal_labels", inputs, outputs, dict(options, **attrs), name=name)


FLAT = np.array(REGIONS.array)
FLAT[[2, 11], 2] -= 20
CASES += [
    labels(""),
    labels("many", batch_size_per_im=100, fg_fraction=0.25),
    labels("between", bg_thresh_lo=0.1, bg_thresh_hi=0.3, fg_thresh=0.5),
    labels("agnostic", is_cls_agnostic=True),
    labels("cascade", is_cascade_rcnn=True, batch_size_per_im=50),
    labels("cascade_flat", Lod(FLAT, REGIONS.lengths), is_cascade_rcnn=True, batch_size_per_im=50, bg_thresh_lo=0.1),
]

SIZES = np.exp(f32(9, 2, low=2, high=6.5))
OF_SIZES = Lod(np.concatenate([f32(9, 2, low=0, high=50), SIZES], 1), [[3, 1, 5]])


def distributed(name, levels, **attrs):
    outputs = "MultiFpnRois*%d RestoreIndex" % levels
    return Case("distribute_fpn_proposals", {"FpnRois": OF_SIZES}, outputs, attrs, name=name)


def collected(name, scores, most, lengths=([[3, 1, 2]], [[2, 2, 4]])):
    rois = [Lod(f32(sum(each[0]), 4, salt=i), each) for i, each in enumerate(lengths)]
    points = [Lod(values, each) for values, each in zip(scores, lengths)]
    inputs = {"MultiLevelRois": rois, "MultiLevelScores": points}
    return Case("collect_fpn_proposals", inputs, "FpnRois", {"post_nms_topN": most}, name=name)


CASES += [
    distributed("", 3, min_level=3, max_level=5, refer_level=4, refer_scale=60),
    distributed("one_level", 1, min_level=2, max_level=2, refer_level=4, refer_scale=224),
    collected("", [distinct(6, 1), distinct(8, 1) + np.float32(0.03)], 9),
    collected("all", [distinct(6, 1), distinct(8, 1) + np.float32(0.03)], 100),
    collected("ties", [ints(6, 1, high=4).astype("float32"), ints(8, 1, high=4).astype("float32")], 11),
]


@layer_case(
    CASES,
    code=f32(3, 20, 4),
    logit=f32(3, 20, 1),
    classes=CLASSES,
    anchor=ANCHORS,
    truth=TRUTH,
    crowd=CROWD,
    info=INFO,
)
def targets_of_anchors(fluid, code, logit, classes, anchor, truth, crowd, info):
    layers = fluid.layers
    for each in (anchor, truth, info):
        each.stop_gradient = True
    options = [6, -1.0, 0.5, 0.4, 0.2, False]
    found = layers.rpn_target_assign(code, logit, anchor, anchor, truth, crowd, info, *options)
    every = layers.retinanet_target_assign(
        layers.tanh(code), layers.expand(logit, [1, 1, 3]), anchor, anchor, truth, classes, crowd, info, 3, 0.4, 0.2
    )
    score, place, label, target, weight = found
    # What mixes rows must leave padding out.
    loss = layers.sigmoid_cross_entropy_with_logits(score, layers.cast(label, "float32"))
    near = layers.smooth_l1(place, target, inside_weight=weight, outside_weight=weight)
    focal = layers.sigmoid_focal_loss(every[0], every[2], layers.reduce_sum(every[5]))
    return [layers.reduce_mean(loss), layers.reduce_sum(near), layers.reduce_sum(focal)] + list(found) + list(every)


@layer_case(
    CASES,
    grads=False,
    score=distinct(2, 3, 3, 2),
    code=f32(2, 12, 3, 2),
    image=f32(2, 3, 24, 16),
    info=np.array([[24, 16, 1], [22, 16, 1.5]], "float32"),
    classes=Lod(CLASSES.array[:3], [[2, 1]]),
    crowd=Lod(CROWD.array[2:5], [[2, 1]]),
    truth=Lod(TRUTH.array[:3], [[2, 1]]),
)
def two_stages(fluid, score, code, image, info, classes, crowd, truth):
    layers = fluid.layers
    anchor, variance = layers.anchor_generator(score, [8, 16, 24], [1.0], [0.1, 0.1, 0.2, 0.2], [8, 8])
    first = layers.generate_proposals(score, code, info, anchor, variance, 20, 8, 0.7, 1.0, return_rois_num=True)
    more = layers.generate_proposals(layers.scale(score, -1.0), code, info, anchor, variance, 20, 8, 0.7, 1.0)
    both = layers.collect_fpn_proposals([first[0], more[0]], [first[1], more[1]], 2, 3, 12)
    found = layers.generate_proposal_labels(
        both, classes, crowd, truth, info, 8, 0.5, 0.3, 0.3, 0.0, class_nums=4, use_random=False
    )
    levels, restore = layers.distribute_fpn_proposals(found[0], 2, 4, 3, 8)
    pooled = [layers.roi_align(image, each, 2, 2, 0.5**i, 2) for i, each in enumerate(levels)]
    pooled = layers.gather(layers.concat(pooled), restore)
    return list(first) + [both] + list(found) + levels + [restore, pooled, layers.reduce_mean(pooled, dim=0)]
