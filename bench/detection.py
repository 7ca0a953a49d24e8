"""Steps of single layers of detectors, forward and backward, on feature maps that are parameters.

    python detection.py roi_align | roi_pool | deformable_conv | yolov3_loss [--cache]

The number of regions differs from batch to batch.
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


# name -> samples in a batch, data, build
WORKLOADS = {
    "roi_align": (2, region_data, region_build("roi_align")),
    "roi_pool": (2, region_data, region_build("roi_pool")),
    "deformable_conv": (2, deformable_data, deformable_build),
    "yolov3_loss": (8, yolo_data, yolo_build),
}


def optimizer(fluid):
    return fluid.optimizer.SGD(1e-4)


def main():
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in WORKLOADS:
        raise SystemExit("usage: detection.py %s" % " | ".join(WORKLOADS))
    batch, data, build = WORKLOADS[name]
    chosen = dict(globals(), NAME="detection_" + name, BATCH=batch, data=data, build=build)
    if data is region_data:
        chosen["to_feed"] = region_feed
    common.main(chosen)


if __name__ == "__main__":
    main()
