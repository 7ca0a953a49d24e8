"""Networks of the public collection of image classifiers, with few channels, trained for three steps.

They are built as their papers describe them. Runs on Python 3.7 too, because the oracle imports it.
"""

from golden.train_models import images
from golden.training import TrainCase

CASES = []
CLASSES = 5


def net(name, size):
    """Decorator: adds a network, from an image to features, as a classifier."""

    def add(features):
        def build(fluid):
            layers = fluid.layers
            image, label = layers.data("image", [3, size, size]), layers.data("label", [1], dtype="int64")
            outs = features(fluid, image)
            outs = outs if isinstance(outs, list) else [outs]
            losses = [layers.mean(layers.cross_entropy(layers.fc(out, CLASSES, act="softmax"), label)) for out in outs]
            loss = layers.sums([losses[0]] + [0.3 * each for each in losses[1:]])
            fluid.optimizer.Momentum(0.01, 0.9, regularization=fluid.regularizer.L2Decay(1e-4)).minimize(loss)
            return [loss]

        reason = "three steps of float32 training amplify rounding"
        feed = images(4, (3, size, size), classes=CLASSES)
        CASES.append(TrainCase(name, build, feed, 3, keep="fetches", rtol=1e-4, reason=reason))
        return features

    return add


def conv(fluid, x, channels, size=1, stride=1, groups=1, act="relu"):
    """Convolution, normalization, activation; ``size`` may be (height, width)."""
    high, wide = size if isinstance(size, tuple) else (size, size)
    out = fluid.layers.conv2d(
        x, channels, (high, wide), stride, ((high - 1) // 2, (wide - 1) // 2), groups=groups, bias_attr=False
    )
    return fluid.layers.batch_norm(out, act=act)


@net("googlenet", 32)
def googlenet(fluid, x):
    """Four branches side by side, two classifiers on the way, and windows larger than what is left of the image."""
    layers = fluid.layers

    def plain(x, channels, size=1, stride=1):
        return layers.conv2d(x, channels, size, stride, (size - 1) // 2, act="relu")

    def inception(x, one, before3, three, before5, five, pooled):
        pool = layers.pool2d(x, 3, "max", 1, 1)
        branches = [
            plain(x, one),
            plain(plain(x, before3), three, 3),
            plain(plain(x, before5), five, 5),
            plain(pool, pooled),
        ]
        return layers.relu(layers.concat(branches, 1))

    def beside(x):
        x = plain(layers.pool2d(x, 5, "avg", 3), 4)
        return layers.dropout(layers.fc(x, 8, act="relu"), 0.0)

    x = layers.pool2d(plain(x, 4, 7, 2), 3, "max", 2)
    x = layers.pool2d(plain(plain(x, 4), 6, 3), 3, "max", 2)
    x = inception(x, 2, 2, 4, 1, 2, 2)
    first = beside(x)
    x = inception(x, 3, 2, 4, 1, 2, 2)
    second = beside(x)
    x = inception(layers.pool2d(x, 3, "max", 2), 4, 2, 4, 1, 2, 2)
    return [layers.pool2d(x, 7, "avg", 7), first, second]


@net("inception-v4", 32)
def inception_v4(fluid, x):
    """A stem, and blocks A, B and C with their reductions: long thin convolutions and averages."""
    layers = fluid.layers

    def average(x):
        return layers.pool2d(x, 3, "avg", 1, 1)

    def block_a(x):
        branches = [conv(fluid, average(x), 3), conv(fluid, x, 3), conv(fluid, conv(fluid, x, 2), 3, 3)]
        return layers.concat([*branches, conv(fluid, conv(fluid, conv(fluid, x, 2), 3, 3), 3, 3)], 1)

    def block_b(x):
        thin = conv(fluid, conv(fluid, conv(fluid, x, 3), 3, (1, 7)), 4, (7, 1))
        return layers.concat([conv(fluid, average(x), 3), conv(fluid, x, 4), thin], 1)

    def block_c(x):
        both = conv(fluid, x, 3)
        sides = [conv(fluid, both, 2, (1, 3)), conv(fluid, both, 2, (3, 1))]
        return layers.concat([conv(fluid, average(x), 2), conv(fluid, x, 2), *sides], 1)

    def reduced(x, channels):
        return layers.concat([layers.pool2d(x, 3, "max", 2), layers.conv2d(x, channels, 3, 2, act="relu")], 1)

    x = reduced(conv(fluid, x, 4, 3, 2), 4)
    x = reduced(block_a(x), 4)
    x = block_c(block_b(x))
    return layers.pool2d(x, pool_type="avg", global_pooling=True)


@net("efficientnet", 16)
def efficientnet(fluid, x):
    """Inverted bottlenecks with squeeze and excitation, and swish."""
    layers = fluid.layers

    def bottleneck(x, channels, expand, size, stride):
        before = x.shape[1]
        y = conv(fluid, x, before * expand, act="swish") if expand > 1 else x
        y = conv(fluid, y, before * expand, size, stride, groups=before * expand, act="swish")
        squeezed = layers.pool2d(y, pool_type="avg", global_pooling=True)
        squeezed = layers.swish(layers.conv2d(squeezed, 2, 1))
        y = y * layers.sigmoid(layers.conv2d(squeezed, before * expand, 1))
        y = conv(fluid, y, channels, act=None)
        return x + y if stride == 1 and before == channels else y

    x = conv(fluid, x, 4, 3, 2, act="swish")
    x = bottleneck(x, 4, 1, 3, 1)
    x = bottleneck(x, 6, 2, 5, 2)
    x = bottleneck(x, 6, 2, 3, 1)
    return layers.pool2d(conv(fluid, x, 8, act="swish"), pool_type="avg", global_pooling=True)


@net("densenet", 16)
def densenet(fluid, x):
    """Layers that see all layers before them."""
    layers = fluid.layers

    def dense(x):
        y = layers.conv2d(layers.batch_norm(x, act="relu"), 8, 1, bias_attr=False)
        y = layers.conv2d(layers.batch_norm(y, act="relu"), 3, 3, padding=1, bias_attr=False)
        return layers.concat([x, layers.dropout(y, 0.0)], 1)

    x = layers.pool2d(conv(fluid, x, 6, 3), 3, "max", 2, 1)
    for last in (False, True):
        for _ in range(3):
            x = dense(x)
        if not last:
            x = layers.conv2d(layers.batch_norm(x, act="relu"), x.shape[1] // 2, 1, bias_attr=False)
            x = layers.pool2d(x, 2, "avg", 2)
    return layers.pool2d(layers.batch_norm(x, act="relu"), pool_type="avg", global_pooling=True)
