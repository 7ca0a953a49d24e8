"""How long a large program takes to build, to run for the first time, and to run for the first time with a warm cache.

    python bench/resnet50_build.py [--batch 2] [--image 224]

Prints one JSON line. Run it twice: the second run finds the compiled step in the persistent cache. It runs on real Fluid
as well.
"""

import argparse
import json
import time

T0 = time.time()
import numpy as np  # noqa: E402
import paddle.fluid as fluid  # noqa: E402

IMPORTED = time.time() - T0


def conv_bn(x, filters, size, stride=1, act=None):
    x = fluid.layers.conv2d(x, filters, size, stride, (size - 1) // 2, bias_attr=False)
    return fluid.layers.batch_norm(x, act=act)


def bottleneck(x, filters, stride):
    out = conv_bn(x, filters, 1, act="relu")
    out = conv_bn(out, filters, 3, stride, act="relu")
    out = conv_bn(out, filters * 4, 1)
    if x.shape[1] != filters * 4 or stride != 1:
        x = conv_bn(x, filters * 4, 1, stride)
    return fluid.layers.elementwise_add(x, out, act="relu")


def resnet50(image, classes=1000):
    x = fluid.layers.pool2d(conv_bn(image, 64, 7, 2, "relu"), 3, "max", 2, 1)
    for stage, depth in enumerate((3, 4, 6, 3)):
        for block in range(depth):
            x = bottleneck(x, 64 * 2**stage, 2 if block == 0 and stage > 0 else 1)
    x = fluid.layers.pool2d(x, pool_type="avg", global_pooling=True)
    return fluid.layers.fc(x, classes, act="softmax")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--image", type=int, default=224)
    options = parser.parse_args()
    started = time.time()
    image = fluid.layers.data("image", [3, options.image, options.image])
    label = fluid.layers.data("label", [1], dtype="int64")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(resnet50(image), label))
    fluid.optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(1e-4)).minimize(loss)
    built = time.time() - started
    exe = fluid.Executor(fluid.CPUPlace())
    started = time.time()
    exe.run(fluid.default_startup_program())
    initialised = time.time() - started
    feed = {
        "image": np.random.rand(options.batch, 3, options.image, options.image).astype("float32"),
        "label": np.zeros((options.batch, 1), "int64"),
    }
    times = []
    for _ in range(3):
        started = time.time()
        exe.run(feed=feed, fetch_list=[loss])
        times.append(time.time() - started)
    print(
        json.dumps(
            dict(
                ops=len(fluid.default_main_program().global_block().ops),
                import_s=round(IMPORTED, 2),
                build_s=round(built, 2),
                startup_s=round(initialised, 2),
                first_step_s=round(times[0], 2),
                later_step_s=round(times[-1], 2),
            )
        )
    )


if __name__ == "__main__":
    main()
