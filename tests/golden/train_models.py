"""Six models as Fluid scripts write them, trained for 50 steps. Only losses are recorded.

Runs on Python 3.7 too, because the oracle imports it.
"""

import numpy as np

from golden.training import TrainCase

CASES = []


def model(name, feed, steps=50, rtol=1e-4, reason="fifty steps of float32 training amplify rounding"):
    """Decorator: adds ``build`` as a case that records losses only."""

    def add(build):
        CASES.append(TrainCase(name, build, feed, steps, keep="fetches", rtol=rtol, reason=reason))
        return build

    return add


def noise(step, *shape):
    return np.random.RandomState(1000 + step).uniform(-1, 1, shape).astype("float32")


def line_feed(step):
    x = noise(step, 20, 13)
    return {"x": x, "y": x.dot(np.cos(np.arange(13.0)).astype("float32").reshape(13, 1)) + 0.5}


@model("fit-a-line", line_feed)
def fit_a_line(fluid):
    x = fluid.layers.data(name="x", shape=[13], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    cost = fluid.layers.square_error_cost(input=fluid.layers.fc(input=x, size=1), label=y)
    loss = fluid.layers.mean(cost)
    fluid.optimizer.SGD(learning_rate=0.05).minimize(loss)
    return [loss]


def images(batch, shape, dtype="float32", classes=10):
    """Noise images, bright in the band that the label names."""

    def feed(step):
        rng = np.random.RandomState(step)
        label = rng.randint(0, classes, (batch, 1)).astype("int64")
        image = rng.uniform(-1, 1, (batch, *shape)).astype(dtype)
        band = image[0].size // classes
        for i, k in enumerate(label[:, 0]):
            image.reshape(batch, -1)[i, k * band : (k + 1) * band] += 1.0
        return {"image": image, "label": label}

    return feed


@model("mnist-mlp-adam", images(16, (784,)))
def mnist_mlp(fluid):
    image = fluid.layers.data(name="image", shape=[784], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    hidden = fluid.layers.fc(input=image, size=200, act="relu")
    hidden = fluid.layers.fc(input=hidden, size=200, act="relu")
    prediction = fluid.layers.fc(input=hidden, size=10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    fluid.optimizer.Adam(learning_rate=0.001).minimize(loss)
    return [loss]


@model("lenet-adam", images(8, (1, 28, 28)))
def lenet(fluid):
    image = fluid.layers.data(name="image", shape=[1, 28, 28], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    first = fluid.nets.simple_img_conv_pool(
        input=image, filter_size=5, num_filters=20, pool_size=2, pool_stride=2, act="relu"
    )
    second = fluid.nets.simple_img_conv_pool(
        input=first, filter_size=5, num_filters=50, pool_size=2, pool_stride=2, act="relu"
    )
    prediction = fluid.layers.fc(input=second, size=10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    fluid.optimizer.Adam(learning_rate=0.001).minimize(loss)
    return [loss]


# Batch normalization over few values makes training chaotic: parameters changed by 2e-7 change real Fluid's own losses
# by 10 % within fifty steps of float32. So all fifty are compared in float64, and in float32 the first three.
@model("resnet20-momentum-float32", images(8, (3, 16, 16)), steps=3)
def resnet20_float32(fluid):
    return resnet20(fluid, "float32")


@model("resnet20-momentum", images(8, (3, 16, 16), "float64"))
def resnet20(fluid, dtype="float64"):
    def conv_bn(x, channels, size, stride, act="relu"):
        conv = fluid.layers.conv2d(
            input=x, num_filters=channels, filter_size=size, stride=stride, padding=(size - 1) // 2, bias_attr=False
        )
        return fluid.layers.batch_norm(input=conv, act=act)

    def block(x, channels, stride):
        inner = conv_bn(conv_bn(x, channels, 3, stride), channels, 3, 1, act=None)
        shortcut = x if stride == 1 and x.shape[1] == channels else conv_bn(x, channels, 1, stride, act=None)
        return fluid.layers.elementwise_add(x=inner, y=shortcut, act="relu")

    image = fluid.layers.data(name="image", shape=[3, 16, 16], dtype=dtype)
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    x = conv_bn(image, 16, 3, 1)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        for i in range(3):
            x = block(x, channels, stride if i == 0 else 1)
    pool = fluid.layers.pool2d(input=x, pool_size=4, pool_type="avg", global_pooling=True)
    logits = fluid.layers.fc(input=pool, size=10)
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))
    fluid.optimizer.Momentum(
        learning_rate=0.005, momentum=0.9, regularization=fluid.regularizer.L2Decay(1e-4)
    ).minimize(loss)
    return [loss]


WORDS, LENGTH, WIDTH, HEADS = 10, 6, 16, 4


def sentences(step):
    rng = np.random.RandomState(step)
    words = rng.randint(0, WORDS, (8, LENGTH, 1)).astype("int64")
    positions = np.tile(np.arange(LENGTH).reshape(1, LENGTH, 1), (8, 1, 1)).astype("int64")
    return {"words": words, "positions": positions, "label": (words[:, :1, 0] % 5).astype("int64")}


@model("transformer-encoder", sentences)
def transformer(fluid):
    layers = fluid.layers

    def split_heads(x):
        return layers.transpose(layers.reshape(x, shape=[0, LENGTH, HEADS, WIDTH // HEADS]), perm=[0, 2, 1, 3])

    def attention(x):
        query, key, value = [split_heads(layers.fc(x, WIDTH, num_flatten_dims=2, bias_attr=False)) for _ in range(3)]
        scores = layers.softmax(layers.matmul(query, key, transpose_y=True, alpha=(WIDTH // HEADS) ** -0.5))
        mixed = layers.matmul(layers.dropout(scores, dropout_prob=0.0), value)
        joined = layers.reshape(layers.transpose(mixed, perm=[0, 2, 1, 3]), shape=[0, LENGTH, WIDTH])
        return layers.fc(joined, WIDTH, num_flatten_dims=2, bias_attr=False)

    def add_and_norm(x, y):
        return layers.layer_norm(layers.elementwise_add(x, y), begin_norm_axis=2)

    words = layers.data("words", [LENGTH, 1], dtype="int64")
    positions = layers.data("positions", [LENGTH, 1], dtype="int64")
    label = layers.data("label", [1], dtype="int64")
    x = layers.elementwise_add(layers.embedding(words, [WORDS, WIDTH]), layers.embedding(positions, [LENGTH, WIDTH]))
    for _ in range(2):
        x = add_and_norm(x, attention(x))
        inner = layers.fc(x, 4 * WIDTH, num_flatten_dims=2, act="relu")
        x = add_and_norm(x, layers.fc(inner, WIDTH, num_flatten_dims=2))
    logits = layers.fc(layers.reduce_mean(x, dim=1), 5)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
    fluid.optimizer.Adam(learning_rate=0.005).minimize(loss)
    return [loss]


USERS, MOVIES = 30, 50


def ratings(step):
    rng = np.random.RandomState(step)
    feed = {
        name: rng.randint(0, high, (16, 1)).astype("int64")
        for name, high in (("user", USERS), ("gender", 2), ("age", 7), ("movie", MOVIES), ("category", 9))
    }
    feed["score"] = 1.0 + (feed["user"] + feed["movie"]).astype("float32") % 5
    return feed


@model("recommender-sparse", ratings)
def recommender(fluid):
    layers = fluid.layers

    def tower(features):
        parts = []
        for name, rows in features:
            ids = layers.data(name=name, shape=[1], dtype="int64")
            found = layers.embedding(input=ids, size=[rows, 16], is_sparse=True, param_attr=name + "_table")
            parts.append(layers.fc(input=found, size=16))
        return layers.fc(input=layers.concat(input=parts, axis=1), size=32, act="tanh")

    user = tower([("user", USERS), ("gender", 2), ("age", 7)])
    movie = tower([("movie", MOVIES), ("category", 9)])
    prediction = layers.scale(x=layers.cos_sim(X=user, Y=movie), scale=5.0)
    score = layers.data(name="score", shape=[1], dtype="float32")
    loss = layers.mean(layers.square_error_cost(input=prediction, label=score))
    fluid.optimizer.SGD(learning_rate=0.05).minimize(loss)
    return [loss]
