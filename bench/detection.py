"""Detectors: training steps of two of them, suppression of overlapping boxes, and steps of single layers.

    python detection.py ssd | yolov3 | nms | roi_align | roi_pool | deformable_conv | yolov3_loss [--cache]

ssd and yolov3 are training steps of an SSD on a MobileNet, 300 x 300, and of a YOLOv3 on a narrow DarkNet, 224 x 224.
nms keeps the best of 10,000 boxes. The others are layers, forward and backward, on feature maps that are parameters.
The number of objects and regions differs from batch to batch. To compare with real Fluid, in one run:

    python run.py --python path/to/real/fluid/python --python path/to/refluid/python \\
        detection_ssd detection_yolov3 detection_nms
"""

import sys

import numpy as np

import common

WARMUP, STEPS, REPEATS = 10, 5, 5
REGIONS, STRIDE, SIZE = 256, 16, 50
ANCHORS = [10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326]
MAPS = [(13, [6, 7, 8], 32), (26, [3, 4, 5], 16), (52, [0, 1, 2], 8)]
CLASSES, OBJECTS = 20, 50


def a_map(fluid, name, shape):
    """A feature map that gradients flow to; set_params fills it."""
    return fluid.layers.create_parameter(shape, "float32", name=name)


def region_data(n, seed):
    rng = np.random.RandomState(seed)
    pool = []
    for _ in range(8):
        counts = rng.randint(REGIONS // 2 - 20, REGIONS // 2 + 1, 2)
        corner = rng.uniform(0, 0.6 * STRIDE * SIZE, (counts.sum(), 2))
        side = np.exp(rng.uniform(np.log(STRIDE), np.log(STRIDE * SIZE / 2), (counts.sum(), 2)))
        boxes = np.minimum(np.concatenate([corner, corner + side], 1), STRIDE * SIZE - 1)
        pool.append((boxes.astype("float32"), [list(counts)]))
    return [pool[i % len(pool)] for i in range(n)]


def region_feed(ctx, batch):
    return {"rois": ctx.fluid.create_lod_tensor(batch[0], batch[1], ctx.place)}


def region_build(layer):
    def build(fluid):
        rois = fluid.layers.data("rois", [4], lod_level=1)
        features = a_map(fluid, "features", [2, 256, SIZE, SIZE])
        pooled = getattr(fluid.layers, layer)(features, rois, 7, 7, 1.0 / STRIDE)
        return dict(loss=fluid.layers.reduce_sum(fluid.layers.square(pooled)), feed=[rois])

    return build


def deformable_build(fluid):
    layers = fluid.layers
    scale = layers.data("scale", [1], append_batch_size=False)
    x, offset, mask = (a_map(fluid, name, [2, c, 64, 64]) for name, c in (("x", 64), ("offset", 18), ("mask", 9)))
    moved = layers.elementwise_mul(offset, scale)
    out = layers.deformable_conv(x, moved, layers.sigmoid(mask), 64, 3, padding=1, im2col_step=1)
    return dict(loss=layers.reduce_sum(layers.square(out)), feed=[scale])


def deformable_data(n, seed):
    return [(np.array([400.0], "float32"),)] * n  # offsets of a few pixels


def yolo_build(fluid):
    layers = fluid.layers
    box, label = layers.data("box", [OBJECTS, 4]), layers.data("label", [OBJECTS], dtype="int32")
    losses = []
    for size, mask, ratio in MAPS:
        x = a_map(fluid, "map%d" % size, [8, 3 * (5 + CLASSES), size, size])
        losses.append(layers.mean(layers.yolov3_loss(x, box, label, ANCHORS, mask, CLASSES, 0.7, ratio)))
    return dict(loss=layers.sums(losses), feed=[box, label])


def yolo_data(n, seed):
    rng = np.random.RandomState(seed)
    pool = []
    for _ in range(8):
        box = np.concatenate([rng.uniform(0.1, 0.9, (8, OBJECTS, 2)), rng.uniform(0.02, 0.4, (8, OBJECTS, 2))], 2)
        box[:, rng.randint(5, OBJECTS) :] = 0
        pool.append((box.astype("float32"), rng.randint(0, CLASSES, (8, OBJECTS)).astype("int32")))
    return [pool[i % len(pool)] for i in range(n)]


def objects(rng, most, samples):
    """Objects of each sample: boxes in units of the image, and how many each sample has."""
    counts = rng.randint(most // 2 + 1, most + 1, samples)
    corner = rng.uniform(0, 0.7, (counts.sum(), 2))
    return np.concatenate([corner, corner + rng.uniform(0.05, 0.3, (counts.sum(), 2))], 1).astype("float32"), counts


def conv(fluid, x, channels, size=3, stride=1, groups=1, act="relu"):
    layers = fluid.layers
    out = layers.conv2d(x, channels, size, stride, (size - 1) // 2, groups=groups, bias_attr=False)
    return layers.batch_norm(out, act=act)


SSD_BATCH, SSD_SIZE, SSD_CLASSES = 4, 300, 21


def ssd_build(fluid):
    layers = fluid.layers
    image = layers.data("image", [3, SSD_SIZE, SSD_SIZE])
    box, label = layers.data("box", [4], lod_level=1), layers.data("label", [1], dtype="int32", lod_level=1)

    def separable(x, channels, stride=1):
        return conv(fluid, conv(fluid, x, x.shape[1], stride=stride, groups=x.shape[1]), channels, 1)

    x = separable(conv(fluid, image, 32, stride=2), 64)
    for channels, stride in ((128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1)):
        x = separable(x, channels, stride)
    maps = [x, separable(x, 1024, 2)]
    for channels in (256, 128, 128, 64):
        maps.append(conv(fluid, conv(fluid, maps[-1], channels, 1), 2 * channels, 3, 2))
    ratios = [[2.0], [2.0, 3.0], [2.0, 3.0], [2.0, 3.0], [2.0, 3.0], [2.0, 3.0]]
    found = layers.multi_box_head(maps, image, SSD_SIZE, SSD_CLASSES, ratios, 20, 90, flip=True)
    place, score, prior, variance = found
    loss = layers.reduce_sum(layers.ssd_loss(place, score, box, label, prior, variance))
    return dict(loss=loss, feed=[image, box, label])


def ssd_data(n, seed):
    rng = np.random.RandomState(seed)
    pool = []
    for _ in range(4):
        image = rng.uniform(-1, 1, (SSD_BATCH, 3, SSD_SIZE, SSD_SIZE)).astype("float32")
        box, counts = objects(rng, 12, SSD_BATCH)
        pool.append((image, box, rng.randint(1, SSD_CLASSES, (len(box), 1)).astype("int32"), [list(counts)]))
    pool.sort(key=lambda batch: -len(batch[1]))  # what is compiled for the first batch has room for the others
    return [pool[i % len(pool)] for i in range(n)]


def ssd_feed(ctx, batch):
    image, box, label, counts = batch
    made = (ctx.fluid.create_lod_tensor(each, counts, ctx.place) for each in (box, label))
    return dict(zip(("image", "box", "label"), (image,) + tuple(made)))


YOLO_BATCH, YOLO_SIZE = 4, 224


def yolov3_build(fluid):
    layers = fluid.layers
    image = layers.data("image", [3, YOLO_SIZE, YOLO_SIZE])
    box, label = layers.data("box", [OBJECTS, 4]), layers.data("label", [OBJECTS], dtype="int32")

    def leaky(x, channels, size=3, stride=1):
        return layers.leaky_relu(conv(fluid, x, channels, size, stride, act=None), 0.1)

    x, maps = leaky(image, 16), []
    for channels, blocks in ((32, 1), (64, 1), (128, 2), (256, 2), (512, 1)):
        x = leaky(x, channels, stride=2)
        for _ in range(blocks):
            x = layers.elementwise_add(x, leaky(leaky(x, channels // 2, 1), channels))
        maps.append(x)
    losses, route = [], None
    for channels, x, (_, mask, ratio) in zip((256, 128, 64), maps[:1:-1], MAPS):
        if route is not None:
            larger = layers.resize_nearest(leaky(route, channels, 1), scale=2.0, align_corners=False)
            x = layers.concat([larger, x], axis=1)
        route = leaky(leaky(leaky(x, channels, 1), 2 * channels), channels, 1)
        out = layers.conv2d(leaky(route, 2 * channels), 3 * (5 + CLASSES), 1)
        losses.append(layers.mean(layers.yolov3_loss(out, box, label, ANCHORS, mask, CLASSES, 0.7, ratio)))
    return dict(loss=layers.sums(losses), feed=[image, box, label])


def yolov3_data(n, seed):
    rng = np.random.RandomState(seed)
    images = [rng.uniform(-1, 1, (YOLO_BATCH, 3, YOLO_SIZE, YOLO_SIZE)).astype("float32") for _ in range(4)]
    truth = yolo_data(4, seed)
    pool = [(image, box[:YOLO_BATCH], label[:YOLO_BATCH]) for image, (box, label) in zip(images, truth)]
    return [pool[i % len(pool)] for i in range(n)]


BOXES, NMS_CLASSES = 10000, 4


def nms():
    """Keeps the best of many boxes, class by class; measured are images per second."""
    options = common.args()
    import paddle.fluid as fluid

    layers, rng = fluid.layers, np.random.RandomState(common.SEED)
    box = layers.data("box", [1, BOXES, 4], append_batch_size=False)
    score = layers.data("score", [1, NMS_CLASSES, BOXES], append_batch_size=False)
    kept = layers.multiclass_nms(box, score, 0.05, -1, 200, 0.45, background_label=-1)
    # A hundred objects, each with a hundred boxes around it.
    center = np.repeat(rng.uniform(0.1, 0.9, (BOXES // 100, 2)), 100, 0) + rng.normal(0, 0.02, (BOXES, 2))
    side = rng.uniform(0.05, 0.2, (BOXES, 2))
    boxes = np.concatenate([center - side / 2, center + side / 2], 1).astype("float32")[None]
    scores = rng.uniform(0, 1, (1, NMS_CLASSES, BOXES)).astype("float32")
    exe = fluid.Executor(fluid.CPUPlace())

    def step(i):
        feed = {"box": boxes, "score": np.roll(scores, i, 2)}
        (found,) = exe.run(fluid.default_main_program(), feed=feed, fetch_list=[kept], return_numpy=False)
        return np.array(found)[:, 1].sum()

    rounds = options.warmup or 3, options.steps or STEPS, options.repeats or REPEATS
    common.measure("detection_nms", step, 1, *rounds)


# name -> samples in a batch, data, build
WORKLOADS = {
    "ssd": (SSD_BATCH, ssd_data, ssd_build),
    "yolov3": (YOLO_BATCH, yolov3_data, yolov3_build),
    "roi_align": (2, region_data, region_build("roi_align")),
    "roi_pool": (2, region_data, region_build("roi_pool")),
    "deformable_conv": (2, deformable_data, deformable_build),
    "yolov3_loss": (8, yolo_data, yolo_build),
}


def optimizer(fluid):
    return fluid.optimizer.SGD(1e-4)


def main():
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name == "nms":
        return nms()
    if name not in WORKLOADS:
        raise SystemExit("usage: detection.py nms | %s" % " | ".join(WORKLOADS))
    batch, data, build = WORKLOADS[name]
    chosen = dict(globals(), NAME="detection_" + name, BATCH=batch, data=data, build=build)
    feeds = {region_data: region_feed, ssd_data: ssd_feed}
    if data in feeds:
        chosen["to_feed"] = feeds[data]
    if name in ("ssd", "yolov3"):
        chosen.update(WARMUP=4, STEPS=2, REPEATS=4)
    return common.main(chosen)


if __name__ == "__main__":
    main()
