"""Small detectors of five families, trained for three steps; what they detect afterwards is recorded as well.

They are built as their papers describe them, with a few channels. Runs on Python 3.7 too.
"""

import numpy as np

from golden.case import Lod
from golden.training import TrainCase, as_feed

CASES = []
STEPS, BATCH, CLASSES = 3, 2, 4  # the classes include the background, where there is one
FOUR = [0.1, 0.1, 0.2, 0.2]


def detector(name, feed):
    """Decorator: adds ``build``, which returns losses and, if any, what an inference program fetches."""

    def add(build):
        reason = "three steps of float32 training amplify rounding"
        CASES.append(TrainCase(name, build, feed, STEPS, keep="fetches", rtol=1e-4, reason=reason))
        return build

    return add


def scene(step, size, pixels=False):
    """Noise images with two or three bright boxes; boxes are in units of the image unless they are pixels."""
    rng = np.random.RandomState(step)
    image = rng.uniform(-1, 1, (BATCH, 3, size, size)).astype("float32")
    lengths = [2, 3]
    corner = rng.uniform(0.05, 0.45, (5, 2))
    box = np.concatenate([corner, corner + rng.uniform(0.2, 0.5, (5, 2))], 1)
    for i, (left, top, right, bottom) in enumerate((box * size).astype(int)):
        image[int(i >= lengths[0]), :, top:bottom, left:right] += 1.0
    box = (box * size if pixels else box).astype("float32")
    label = rng.randint(1, CLASSES, (5, 1)).astype("int32")
    return image, Lod(box, [lengths]), Lod(label, [lengths])


def conv(fluid, x, channels, size=3, stride=1, groups=1, act="relu", norm=True):
    """Convolution, normalization, activation."""
    layers = fluid.layers
    padding = (size - 1) // 2
    if not norm:
        return layers.conv2d(x, channels, size, stride, padding, act=act)
    out = layers.conv2d(x, channels, size, stride, padding, groups=groups, bias_attr=False)
    return layers.batch_norm(out, act=act)


def up(fluid, x):
    return fluid.layers.resize_nearest(x, scale=2.0, align_corners=False)


def trained(fluid, losses, detected=None, feed=None):
    """What is fetched in every step, and a test of what is detected after the last one."""
    test = fluid.default_main_program().clone(for_test=True)
    loss = losses[0] if len(losses) == 1 else fluid.layers.sums(losses)
    fluid.optimizer.Momentum(0.01, 0.9, regularization=fluid.regularizer.L2Decay(1e-4)).minimize(loss)
    fetches = [loss] + (losses if len(losses) > 1 else [])
    if detected is None:
        return fetches

    def finish(fluid, exe, scope):
        (found,) = exe.run(test, feed=as_feed(fluid, feed(9)), fetch_list=[detected.name], return_numpy=False)
        yield "found", np.array(found)
        yield "lengths", np.array(found.recursive_sequence_lengths()[0])

    return {"fetch": fetches, "finish": finish}


def ssd_feed(step):
    image, box, label = scene(step, 32)
    return {"image": image, "box": box, "label": label}


@detector("ssd-mobilenet", ssd_feed)
def ssd_mobilenet(fluid):
    layers = fluid.layers
    image = layers.data("image", [3, 32, 32])
    box = layers.data("box", [4], lod_level=1)
    label = layers.data("label", [1], dtype="int32", lod_level=1)

    def separable(x, channels, stride):
        x = conv(fluid, x, x.shape[1], stride=stride, groups=x.shape[1])
        return conv(fluid, x, channels, 1)

    x = separable(conv(fluid, image, 8, stride=2), 16, 2)
    maps = [x, separable(x, 16, 2)]
    maps.append(conv(fluid, conv(fluid, maps[-1], 8, 1), 16, 3, 2))
    place, score, prior, variance = layers.multi_box_head(
        maps, image, 32, CLASSES, [[2.0], [2.0, 3.0], [2.0]], 20, 90, flip=True
    )
    loss = layers.reduce_sum(layers.ssd_loss(place, score, box, label, prior, variance))
    found = layers.detection_output(place, score, prior, variance, score_threshold=0.05, nms_top_k=20, keep_top_k=10)
    return trained(fluid, [loss], found, ssd_feed)


ANCHORS = [4, 5, 8, 6, 7, 12, 12, 10, 20, 16, 16, 24]


def yolo_feed(step):
    image, box, label = scene(step, 32)
    boxes, labels = np.zeros((BATCH, 4, 4), "float32"), np.zeros((BATCH, 4), "int32")
    first = 0
    for i, count in enumerate(box.lengths[0]):
        own = box.array[first : first + count]
        boxes[i, :count] = np.concatenate([(own[:, :2] + own[:, 2:]) / 2, own[:, 2:] - own[:, :2]], 1)
        labels[i, :count] = label.array[first : first + count, 0] - 1
        first += count
    return {"image": image, "box": boxes, "label": labels, "size": np.array([[40, 48], [32, 32]], "int32")}


@detector("yolov3", yolo_feed)
def yolov3(fluid):
    layers, kinds = fluid.layers, CLASSES - 1
    image = layers.data("image", [3, 32, 32])
    box, label = layers.data("box", [4, 4]), layers.data("label", [4], dtype="int32")
    size = layers.data("size", [2], dtype="int32")

    def leaky(x, channels, width=3, stride=1):
        return layers.leaky_relu(conv(fluid, x, channels, width, stride, act=None), alpha=0.1)

    def residual(x):
        return layers.elementwise_add(x, leaky(leaky(x, x.shape[1] // 2, 1), x.shape[1]))

    near = residual(leaky(leaky(image, 8, stride=2), 16, stride=2))
    far = residual(leaky(near, 16, stride=2))
    route = leaky(far, 8, 1)
    near = layers.concat([up(fluid, leaky(route, 8, 1)), near], axis=1)
    heads = [(leaky(route, 16), [3, 4, 5], 8), (leaky(near, 16), [0, 1, 2], 4)]
    losses, boxes, scores = [], [], []
    for x, mask, ratio in heads:
        out = layers.conv2d(x, 3 * (5 + kinds), 1)
        loss = layers.yolov3_loss(out, box, label, ANCHORS, mask, kinds, 0.6, ratio, use_label_smooth=True)
        losses.append(layers.reduce_mean(loss))
        own = [number for i in mask for number in ANCHORS[2 * i : 2 * i + 2]]
        found = layers.yolo_box(out, size, own, kinds, 0.05, ratio)
        boxes.append(found[0])
        scores.append(layers.transpose(found[1], [0, 2, 1]))
    kept = layers.multiclass_nms(
        layers.concat(boxes, axis=1), layers.concat(scores, axis=2), 0.05, 30, 10, 0.45, False, background_label=-1
    )
    return trained(fluid, losses, kept, yolo_feed)


INFO = np.array([[32, 32, 1.0], [32, 32, 0.8]], "float32")


def pixels_feed(step):
    image, box, label = scene(step, 32, pixels=True)
    box.array[2:] /= INFO[1, 2]  # in the original image
    crowd = np.array([[0], [0], [0], [1], [0]], "int32")
    return {"image": image, "box": box, "label": label, "crowd": Lod(crowd, box.lengths), "info": INFO}


def pixels_data(fluid):
    layers = fluid.layers
    return (
        layers.data("image", [3, 32, 32]),
        layers.data("box", [4], lod_level=1),
        layers.data("label", [1], dtype="int32", lod_level=1),
        layers.data("crowd", [1], dtype="int32", lod_level=1),
        layers.data("info", [3]),
    )


def pyramid(fluid, image, channels):
    """Two levels of a feature pyramid, the finer one first."""
    layers = fluid.layers
    fine = conv(fluid, conv(fluid, image, 8, stride=2), 12, stride=2)
    coarse = conv(fluid, fine, 16, stride=2)
    top = layers.conv2d(coarse, channels, 1)
    side = layers.elementwise_add(layers.conv2d(fine, channels, 1), up(fluid, top))
    return [layers.conv2d(each, channels, 3, padding=1) for each in (side, top)]


def shared(fluid, x, channels, size, name, act=None):
    """A convolution whose parameters all levels share."""
    attr = fluid.ParamAttr(name=name + "_w"), fluid.ParamAttr(name=name + "_b")
    return fluid.layers.conv2d(x, channels, size, padding=size // 2, param_attr=attr[0], bias_attr=attr[1], act=act)


def per_anchor(fluid, x, numbers):
    """[images, anchors, numbers] of a feature map."""
    return fluid.layers.reshape(fluid.layers.transpose(x, [0, 2, 3, 1]), [0, -1, numbers])


def flat(fluid, x):
    x.stop_gradient = True
    return fluid.layers.reshape(x, [-1, 4])


@detector("faster-rcnn-fpn", pixels_feed)
def faster_rcnn(fluid):
    layers = fluid.layers
    image, box, label, crowd, info = pixels_data(fluid)
    levels = pyramid(fluid, image, 8)
    logits, codes, anchors, proposed, points = [], [], [], [], []
    for i, x in enumerate(levels):
        hidden = shared(fluid, x, 8, 3, "rpn", act="relu")
        logit, code = shared(fluid, hidden, 3, 1, "rpn_score"), shared(fluid, hidden, 12, 1, "rpn_box")
        anchor, variance = layers.anchor_generator(x, [8.0 * 2**i], [0.5, 1.0, 2.0], [1.0] * 4, [4.0 * 2**i] * 2)
        rois, point = layers.generate_proposals(layers.sigmoid(logit), code, info, anchor, variance, 40, 12, 0.7, 0.0)
        proposed.append(rois)
        points.append(point)
        logits.append(per_anchor(fluid, logit, 1))
        codes.append(per_anchor(fluid, code, 4))
        anchors.append(flat(fluid, anchor))
    anchor = layers.concat(anchors)
    score, place, kind, target, weight = layers.rpn_target_assign(
        layers.concat(codes, axis=1),
        layers.concat(logits, axis=1),
        anchor,
        anchor,
        box,
        crowd,
        info,
        rpn_batch_size_per_im=16,
        rpn_straddle_thresh=0.0,
        rpn_positive_overlap=0.5,
        use_random=False,
    )
    kind = layers.cast(kind, "float32")
    kind.stop_gradient = True
    of_anchors = layers.reduce_mean(layers.sigmoid_cross_entropy_with_logits(score, kind))
    moved = layers.smooth_l1(place, target, sigma=3.0, inside_weight=weight, outside_weight=weight)
    of_anchor_boxes = layers.reduce_mean(moved)

    rois = layers.collect_fpn_proposals(proposed, points, 2, 3, 20)
    rois, kind, target, inside, outside = layers.generate_proposal_labels(
        rois, label, crowd, box, info, 12, 0.25, 0.4, 0.4, 0.0, FOUR, CLASSES, use_random=False
    )
    parts, restore = layers.distribute_fpn_proposals(rois, 2, 3, 3, 16)
    pooled = [layers.roi_align(x, parts[i], 3, 3, 0.25 / 2**i, 2) for i, x in enumerate(levels)]
    head = layers.fc(layers.gather(layers.concat(pooled), restore), 16, act="relu")
    kind = layers.cast(kind, "int64")
    kind.stop_gradient = True
    of_classes = layers.reduce_mean(layers.softmax_with_cross_entropy(layers.fc(head, CLASSES), kind))
    place = layers.fc(head, 4 * CLASSES)
    of_boxes = layers.reduce_mean(layers.smooth_l1(place, target, inside_weight=inside, outside_weight=outside))
    return trained(fluid, [of_anchors, of_anchor_boxes, of_classes, of_boxes])


@detector("retinanet", pixels_feed)
def retinanet(fluid):
    layers, kinds = fluid.layers, CLASSES - 1
    image, box, label, crowd, info = pixels_data(fluid)
    logits, codes, anchors = [], [], []
    for i, x in enumerate(pyramid(fluid, image, 8)):
        logit = shared(fluid, shared(fluid, x, 8, 3, "class_tower", "relu"), 2 * kinds, 3, "class")
        code = shared(fluid, shared(fluid, x, 8, 3, "box_tower", "relu"), 8, 3, "box")
        anchor, _ = layers.anchor_generator(x, [8.0 * 2**i, 12.0 * 2**i], [1.0], [1.0] * 4, [4.0 * 2**i] * 2)
        logits.append(per_anchor(fluid, logit, kinds))
        codes.append(per_anchor(fluid, code, 4))
        anchors.append(flat(fluid, anchor))
    anchor = layers.concat(anchors)
    every = layers.concat(codes, axis=1), layers.concat(logits, axis=1)
    score, place, kind, target, weight, number = layers.retinanet_target_assign(
        *every, anchor_box=anchor, anchor_var=anchor, gt_boxes=box, gt_labels=label, is_crowd=crowd, im_info=info,
        num_classes=kinds, positive_overlap=0.5, negative_overlap=0.4
    )  # fmt: skip
    number = layers.reduce_sum(number)
    number.stop_gradient = True
    of_classes = layers.reduce_sum(layers.sigmoid_focal_loss(score, kind, number, 2.0, 0.25))
    moved = layers.smooth_l1(place, target, sigma=3.0, inside_weight=weight, outside_weight=weight)
    of_boxes = layers.reduce_sum(moved) / layers.cast(number, "float32")
    points = [layers.sigmoid(each) for each in logits]
    found = layers.retinanet_detection_output(codes, points, anchors, info, 0.05, 20, 8, 0.4)
    return trained(fluid, [of_classes, of_boxes], found, pixels_feed)


def faces_feed(step):
    image, box, label = scene(step, 32)
    side = box.array[:, 2:] - box.array[:, :2]
    head = np.clip(np.concatenate([box.array[:, :2] - side / 4, box.array[:, 2:] + side / 4], 1), 0, 1)
    ones = np.ones_like(label.array)
    return {"image": image, "face": box, "head": Lod(head, box.lengths), "label": Lod(ones, box.lengths)}


@detector("pyramidbox", faces_feed)
def pyramidbox(fluid):
    layers = fluid.layers
    image = layers.data("image", [3, 32, 32])
    face, head = layers.data("face", [4], lod_level=1), layers.data("head", [4], lod_level=1)
    label = layers.data("label", [1], dtype="int32", lod_level=1)

    def block(x, channels):
        x = conv(fluid, x, channels, norm=False)
        return layers.pool2d(x, 2, "max", 2)

    first = block(block(image, 8), 12)
    second = block(first, 12)
    # The low-level feature pyramid: features of the level above weight those of a level.
    merged = layers.elementwise_mul(up(fluid, conv(fluid, second, 12, 1, norm=False)), conv(fluid, first, 12, 1))
    features = [layers.l2_normalize(merged, axis=1), second]

    def context(x):
        """Branches of growing reach, one after the other, side by side."""
        near = conv(fluid, x, 8, norm=False)
        far = conv(fluid, near, 8, norm=False)
        return layers.relu(layers.concat([near, far], axis=1))

    losses = []
    for what, truth, scale in (("face", face, 1.0), ("head", head, 2.0)):
        places, scores, priors, variances = [], [], [], []
        for i, x in enumerate(features):
            x = context(x)
            prior, variance = layers.prior_box(
                x, image, [8.0 * 2**i * scale], aspect_ratios=[1.0], variance=FOUR, steps=[4.0 * 2**i] * 2, clip=False
            )
            places.append(per_anchor(fluid, layers.conv2d(x, 4, 3, padding=1), 4))
            if what == "face":  # max-in-out: several predictions of the background, or of a face
                out = layers.conv2d(x, 4, 3, padding=1)
                several, one = layers.split(out, [3, 1], dim=1)
                several = layers.reduce_max(several, dim=1, keep_dim=True)
                out = layers.concat([several, one] if i == 0 else [one, several], axis=1)
            else:
                out = layers.conv2d(x, 2, 3, padding=1)
            scores.append(per_anchor(fluid, out, 2))
            priors.append(flat(fluid, prior))
            variances.append(flat(fluid, variance))
        loss = layers.ssd_loss(
            layers.concat(places, axis=1),
            layers.concat(scores, axis=1),
            truth,
            label,
            layers.concat(priors),
            layers.concat(variances),
            overlap_threshold=0.35,
            neg_overlap=0.35,
        )
        losses.append(layers.reduce_sum(loss))
    return trained(fluid, losses)
