"""Click models and language models of the public collections, small, trained for three steps.

They are built as their papers describe them. Runs on Python 3.7 too, because the oracle imports it.
"""

import numpy as np

from golden.case import Lod
from golden.training import TrainCase

CASES = []
FIELDS, VALUES, WIDTH = 5, 30, 4


def model(name, feed):
    """Decorator: adds ``build`` as a case of three steps that records losses only."""

    def add(build):
        reason = "three steps of float32 training amplify rounding"
        CASES.append(TrainCase(name, build, feed, 3, keep="fetches", rtol=1e-4, reason=reason))
        return build

    return add


# Clicks: ids of some fields with their values.


def clicks(step):
    rng = np.random.RandomState(step)
    ids = rng.randint(0, VALUES, (16, FIELDS)).astype("int64")
    return {
        "ids": ids.reshape(-1, FIELDS, 1),
        "values": rng.uniform(0.5, 1.5, (16, FIELDS)).astype("float32"),
        "click": (ids.sum(1, keepdims=True) % 2).astype("float32"),
    }


def fields(fluid):
    """Weights of order one, vectors, and the label."""
    layers = fluid.layers
    ids = layers.data("ids", [FIELDS, 1], dtype="int64")
    values = layers.reshape(layers.data("values", [FIELDS]), [-1, FIELDS, 1])
    first = layers.embedding(ids, [VALUES, 1], is_sparse=True, param_attr=fluid.ParamAttr("first"))
    vectors = layers.embedding(ids, [VALUES, WIDTH], is_sparse=True, param_attr=fluid.ParamAttr("vectors"))
    return first * values, vectors * values, layers.data("click", [1])


def deep(fluid, vectors):
    hidden = fluid.layers.reshape(vectors, [-1, FIELDS * WIDTH])
    for size in (16, 8):
        hidden = fluid.layers.fc(hidden, size, act="relu")
    return hidden


def click_loss(fluid, score, click, optimizer=None):
    layers = fluid.layers
    loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(score, click))
    (optimizer or fluid.optimizer.Adam(0.01)).minimize(loss)
    return [loss, layers.sigmoid(score)]


@model("deepfm", clicks)
def deepfm(fluid):
    """A factorization machine and a deep network on the same vectors."""
    layers = fluid.layers
    first, vectors, click = fields(fluid)
    square_of_sum = layers.square(layers.reduce_sum(vectors, 1))
    sum_of_squares = layers.reduce_sum(layers.square(vectors), 1)
    second = 0.5 * layers.reduce_sum(square_of_sum - sum_of_squares, 1, keep_dim=True)
    score = layers.reduce_sum(first, 1) + second + layers.fc(deep(fluid, vectors), 1)
    return click_loss(fluid, score, click, fluid.optimizer.Adam(0.01, lazy_mode=True))


@model("xdeepfm", clicks)
def xdeepfm(fluid):
    """A compressed interaction network: outer products of fields, compressed by convolutions."""
    layers = fluid.layers
    first, vectors, click = fields(fluid)
    base = layers.split(layers.transpose(vectors, [0, 2, 1]), WIDTH, 1)  # of each column, [N, 1, FIELDS]
    state, count, pooled = vectors, FIELDS, []
    for size in (4, 3):
        columns = layers.split(layers.transpose(state, [0, 2, 1]), WIDTH, 1)
        outer = [layers.matmul(base[i], columns[i], transpose_x=True) for i in range(WIDTH)]
        outer = layers.reshape(layers.concat(outer, 1), [-1, WIDTH, FIELDS * count, 1])
        mixed = layers.conv2d(layers.transpose(outer, [0, 2, 1, 3]), size, 1, bias_attr=False)
        state, count = layers.reshape(mixed, [-1, size, WIDTH]), size
        pooled.append(layers.reduce_sum(state, 2))
    joined = layers.concat([layers.reduce_sum(first, 1), *pooled, deep(fluid, vectors)], 1)
    return click_loss(fluid, layers.fc(joined, 1), click)


@model("dcn", clicks)
def dcn(fluid):
    """Cross layers: x0 * (x . w) + b + x."""
    layers, size = fluid.layers, FIELDS * WIDTH
    _, vectors, click = fields(fluid)
    begin = layers.reshape(vectors, [-1, size])
    x = begin
    for number in range(2):
        weight = layers.create_parameter([size, 1], "float32", f"cross_w{number}")
        bias = layers.create_parameter([size], "float32", f"cross_b{number}", is_bias=True)
        x = layers.elementwise_add(begin * layers.mul(x, weight), bias) + x
    score = layers.fc(layers.concat([x, deep(fluid, vectors)], 1), 1)
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    fluid.clip.set_gradient_clip(clip)
    return click_loss(fluid, score, click)


def histories(step):
    rng = np.random.RandomState(step)
    sizes = [3, 1, 5, 2]
    return {
        "history": Lod(rng.randint(0, VALUES, (sum(sizes), 1)).astype("int64"), [sizes]),
        "item": rng.randint(0, VALUES, (4, 1)).astype("int64"),
        "click": rng.randint(0, 2, (4, 1)).astype("float32"),
    }


@model("din", histories)
def din(fluid):
    """Attention of the item over the user's history."""
    layers = fluid.layers
    history = layers.data("history", [1], dtype="int64", lod_level=1)
    item, click = layers.data("item", [1], dtype="int64"), layers.data("click", [1])
    table = fluid.ParamAttr("items")
    seen = layers.embedding(history, [VALUES, WIDTH], param_attr=table)
    wanted = layers.embedding(item, [VALUES, WIDTH], param_attr=table)
    beside = layers.sequence_expand_as(wanted, seen)
    compared = layers.concat([seen, beside, seen - beside, seen * beside], 1)
    weight = layers.sequence_softmax(layers.fc(layers.fc(compared, 8, act="sigmoid"), 1))
    interest = layers.sequence_pool(layers.elementwise_mul(seen, weight, axis=0), "sum")
    score = layers.fc(layers.fc(layers.concat([interest, wanted], 1), 8, act="sigmoid"), 1)
    return click_loss(fluid, score, click, fluid.optimizer.SGD(0.5))


# Language: masked words and the order of sentences; tags of words.

LENGTH, WORDS, HEADS, SIZE = 6, 20, 2, 8


def masked(step):
    rng = np.random.RandomState(step)
    words = rng.randint(0, WORDS, (4, LENGTH, 1)).astype("int64")
    real = np.arange(LENGTH)[None, :, None] < np.array([6, 4, 5, 3])[:, None, None]
    return {
        "words": words,
        "places": np.tile(np.arange(LENGTH).reshape(1, LENGTH, 1), (4, 1, 1)).astype("int64"),
        "parts": (np.arange(LENGTH).reshape(1, LENGTH, 1) >= 3).astype("int64") * np.ones((4, 1, 1), "int64"),
        "real": real.astype("float32"),
        "at": np.array([[1], [LENGTH + 2], [2 * LENGTH], [3 * LENGTH + 1]], "int64"),
        "hidden_word": rng.randint(0, WORDS, (4, 1)).astype("int64"),
        "follows": rng.randint(0, 2, (4, 1)).astype("int64"),
    }


@model("bert", masked)
def bert(fluid):
    layers = fluid.layers

    def table(name, rows):
        return layers.embedding(
            layers.data(name, [LENGTH, 1], dtype="int64"), [rows, SIZE], param_attr=fluid.ParamAttr(name + "_table")
        )

    def heads(x):
        return layers.transpose(layers.reshape(x, [0, LENGTH, HEADS, SIZE // HEADS]), [0, 2, 1, 3])

    def block(x, bias):
        query, key, value = [heads(layers.fc(x, SIZE, num_flatten_dims=2)) for _ in range(3)]
        weight = layers.softmax(layers.matmul(query, key, transpose_y=True, alpha=(SIZE // HEADS) ** -0.5) + bias)
        mixed = layers.reshape(layers.transpose(layers.matmul(weight, value), [0, 2, 1, 3]), [0, LENGTH, SIZE])
        x = layers.layer_norm(x + layers.fc(mixed, SIZE, num_flatten_dims=2), begin_norm_axis=2)
        inner = layers.fc(layers.fc(x, 2 * SIZE, num_flatten_dims=2, act="gelu"), SIZE, num_flatten_dims=2)
        return layers.layer_norm(x + inner, begin_norm_axis=2)

    x = table("words", WORDS) + table("places", LENGTH) + table("parts", 2)
    x = layers.layer_norm(x, begin_norm_axis=2)
    real = layers.data("real", [LENGTH, 1])
    bias = layers.scale(layers.matmul(real, real, transpose_y=True), 1e4, -1.0, bias_after_scale=False)
    bias = layers.stack([bias] * HEADS, axis=1)
    bias.stop_gradient = True
    for _ in range(2):
        x = block(x, bias)
    at, hidden = layers.data("at", [1], dtype="int64"), layers.data("hidden_word", [1], dtype="int64")
    follows = layers.data("follows", [1], dtype="int64")
    taken = layers.fc(layers.gather(layers.reshape(x, [-1, SIZE]), at), SIZE, act="gelu")
    words = layers.matmul(
        layers.layer_norm(taken), fluid.default_main_program().global_block().var("words_table"), transpose_y=True
    )
    words = layers.elementwise_add(words, layers.create_parameter([WORDS], "float32", "word_bias", is_bias=True))
    first = layers.fc(layers.reshape(layers.slice(x, [1], [0], [1]), [-1, SIZE]), SIZE, act="tanh")
    lost = layers.mean(layers.softmax_with_cross_entropy(words, hidden))
    order = layers.mean(layers.softmax_with_cross_entropy(layers.fc(first, 2), follows))
    rate = layers.linear_lr_warmup(layers.polynomial_decay(0.01, 10, 0.0), 2, 0.0, 0.01)
    fluid.optimizer.Adam(rate, regularization=fluid.regularizer.L2Decay(1e-3)).minimize(lost + order)
    return [lost + order, lost, order]


def tagged(step):
    rng = np.random.RandomState(step)
    sizes = [4, 2, 5]
    words = rng.randint(0, WORDS, (sum(sizes), 1)).astype("int64")
    return {"words": Lod(words, [sizes]), "tags": Lod((words % 3).astype("int64"), [sizes])}


@model("bigru-crf", tagged)
def bigru_crf(fluid):
    layers = fluid.layers
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    tags = layers.data("tags", [1], dtype="int64", lod_level=1)
    x = layers.embedding(words, [WORDS, SIZE])
    for _ in range(2):
        sides = [layers.dynamic_gru(layers.fc(x, 15), 5, is_reverse=reverse) for reverse in (False, True)]
        x = layers.concat(sides, 1)
    scores = layers.fc(x, 3)
    loss = layers.mean(layers.linear_chain_crf(scores, tags, fluid.ParamAttr("crf", learning_rate=0.2)))
    path = layers.crf_decoding(scores, fluid.ParamAttr("crf"))
    counts = layers.chunk_eval(path, tags, "IOB", 1)
    fluid.optimizer.Adagrad(0.05).minimize(loss)
    return [loss, *counts[3:]]
