"""The six models of the comparison, their usual learning rates, and learnable data for them.

Real Fluid (Python 3.7) imports this file too. Everything follows from the seed: initial values, the law behind the
data, the batches and the held-back set are the same on both systems. Labels are noisy, so no loss can reach zero.
"""

import numpy as np

import paddle.fluid as fluid

BATCH, HELD_BACK = 32, 512
TRAINERS = 2


class Model:
    """A model: how to draw ``count`` samples under a seed's law, and how to build its loss."""

    def __init__(self, rate, law, draw, build):
        self.rate, self.law, self.draw, self.build = rate, law, draw, build


def parameter(name, shape, seed):
    """A parameter whose initial values depend on the seed and the name only."""
    rng = np.random.RandomState([seed] + [ord(letter) for letter in name])
    bound = 0.0 if len(shape) == 1 else 1.0 if name == "table" else np.sqrt(6.0 / sum(shape))
    values = rng.uniform(-bound, bound, shape).astype("float32")
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(values))


def fc(x, size, name, seed, act=None):
    width = int(x.shape[1])
    return fluid.layers.fc(
        x,
        size,
        act=act,
        param_attr=parameter(name + "_w", [width, size], seed),
        bias_attr=parameter(name + "_b", [size], seed),
    )


def squared(predicted, label):
    return fluid.layers.mean(fluid.layers.square_error_cost(predicted, label))


def regression(width, scale, noise=0.3):
    """A smooth function of ``width`` inputs, and samples of it with noise."""

    def law(rng):
        return rng.randn(width, 3) / np.sqrt(width)

    def draw(rng, law, count):
        x = rng.randn(count, width)
        inner = x.dot(law)
        y = inner[:, 0] + 0.5 * np.tanh(inner[:, 1]) + 0.3 * np.abs(inner[:, 2]) + noise * rng.randn(count)
        return {"x": scale * x, "label": y[:, None]}

    return law, draw


def inputs(width):
    return fluid.layers.data("x", [width]), fluid.layers.data("label", [1])


def linear(seed):
    x, label = inputs(13)
    return squared(fc(x, 1, "out", seed), label)


def tanh(seed):
    x, label = inputs(100)
    return squared(fc(fc(x, 200, "hidden", seed, "tanh"), 1, "out", seed), label)


def relu(seed):
    x, label = inputs(13)
    hidden = fc(x, 64, "first", seed, "relu")
    hidden = fc(hidden, 32, "second", seed, "relu")
    return squared(fc(hidden, 1, "out", seed), label)


CLASSES, FEATURES = 10, 20


def class_centres(rng):
    return rng.randn(CLASSES, FEATURES)


def draw_classes(rng, centres, count):
    label = rng.randint(0, CLASSES, count)
    return {"x": centres[label] + 1.5 * rng.randn(count, FEATURES), "label": label[:, None]}


def cross_entropy(predicted, label):
    return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(predicted, label))


def softmax(seed):
    x = fluid.layers.data("x", [FEATURES])
    label = fluid.layers.data("label", [1], dtype="int64")
    return cross_entropy(fc(x, CLASSES, "out", seed), label)


ROWS, SLOTS, WORDS, CONTEXT = 300, 6, 50, 4


def row_scores(rng):
    return rng.randn(ROWS)


def draw_clicks(rng, scores, count):
    """Six features per sample, common ones more often than rare ones, and whether it was clicked."""
    ids = np.minimum(rng.zipf(1.3, (count, SLOTS)) - 1 + np.arange(SLOTS) * 7, ROWS - 1)
    chance = 1 / (1 + np.exp(-1.5 * scores[ids].sum(1)))
    return {"ids": ids, "label": (rng.rand(count) < chance)[:, None]}


def embedding(seed):
    ids = fluid.layers.data("ids", [SLOTS], dtype="int64")
    label = fluid.layers.data("label", [1], dtype="int64")
    rows = fluid.embedding(ids, [ROWS, 8], is_sparse=True, param_attr=parameter("table", [ROWS, 8], seed))
    hidden = fc(fluid.layers.reshape(rows, [-1, SLOTS * 8]), 16, "hidden", seed, "relu")
    return cross_entropy(fc(hidden, 2, "out", seed), label)


def favourites(rng):
    """Each word is mostly followed by one of three others."""
    return rng.randint(0, WORDS, (WORDS, 3))


def draw_sentences(rng, favourites, count):
    words = [rng.randint(0, WORDS, count)]
    for _ in range(CONTEXT):
        liked = favourites[words[-1], rng.randint(0, 3, count)]
        words.append(np.where(rng.rand(count) < 0.8, liked, rng.randint(0, WORDS, count)))
    return {"ids": np.stack(words[:-1], 1), "label": words[-1][:, None]}


def word2vec(seed):
    ids = fluid.layers.data("ids", [CONTEXT], dtype="int64")
    label = fluid.layers.data("label", [1], dtype="int64")
    rows = fluid.embedding(ids, [WORDS, 16], is_sparse=True, param_attr=parameter("table", [WORDS, 16], seed))
    hidden = fc(fluid.layers.reshape(rows, [-1, CONTEXT * 16]), 64, "hidden", seed, "sigmoid")
    return cross_entropy(fc(hidden, WORDS, "out", seed), label)


# name: usual learning rate, law behind the data, samples, network
MODELS = {
    "linear": Model(0.1, *regression(13, scale=1.0), linear),
    "tanh": Model(0.1, *regression(100, scale=0.3), tanh),
    "relu": Model(0.05, *regression(13, scale=1.0, noise=0.5), relu),
    "softmax": Model(0.3, class_centres, draw_classes, softmax),
    "embedding": Model(0.5, row_scores, draw_clicks, embedding),
    "word2vec": Model(1.0, favourites, draw_sentences, word2vec),
}
DTYPES = {"x": "float32", "ids": "int64"}


def samples(name, seed, steps):
    """The feeds of each trainer, by step, and the held-back one."""
    model = MODELS[name]
    rng = np.random.RandomState(1000 + seed)
    law = model.law(rng)

    def feed(count):
        drawn = model.draw(rng, law, count)
        label = "float32" if "x" in drawn and drawn["label"].dtype.kind == "f" else "int64"
        return {key: value.astype(DTYPES.get(key, label)) for key, value in drawn.items()}

    held_back = feed(HELD_BACK)
    return [[feed(BATCH) for _ in range(steps)] for _ in range(TRAINERS)], held_back
