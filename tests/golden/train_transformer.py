"""A Transformer that translates, small, trained for three steps; then it translates greedily, word by word.

Built as its paper describes it: masks of padding and of words to come, smoothed labels, a rate that warms up, one table
for both languages and the output. Runs on Python 3.7 too, because the oracle imports it.
"""

import numpy as np

from golden.training import TrainCase

CASES = []
WORDS, LENGTH, SIZE, HEADS, LAYERS = 14, 5, 8, 2, 2
START, NEVER = 0, -1e9


def masks(lengths):
    """What is added to scores: of words in padding, and of words to come as well; one for each head."""
    padding = np.where(np.arange(LENGTH)[None, :] < lengths[:, None], 0.0, NEVER)
    padding = np.tile(padding[:, None, None, :], (1, HEADS, LENGTH, 1)).astype("float32")
    to_come = np.triu(np.full((LENGTH, LENGTH), NEVER), 1).astype("float32")
    return padding, np.tile(to_come, (len(lengths), HEADS, 1, 1))


def sentences(step):
    rng = np.random.RandomState(step)
    source, target = rng.randint(2, WORDS, (2, 3, LENGTH + 1, 1)).astype("int64")
    source_lengths, target_lengths = np.array([5, 3, 4]), np.array([4, 5, 2])
    target[:, 0] = START
    source_padding, to_come = masks(source_lengths)
    places = np.tile(np.arange(LENGTH).reshape(1, LENGTH, 1), (3, 1, 1)).astype("int64")
    counts = np.arange(LENGTH)[None, :] < target_lengths[:, None]
    return {
        "source": source[:, :LENGTH],
        "source_places": places,
        "source_bias": source_padding,
        "target": target[:, :LENGTH],
        "target_places": places,
        "target_bias": to_come,
        "cross_bias": source_padding,
        "next": target[:, 1:].reshape(-1, 1),
        "counts": counts.reshape(-1, 1).astype("float32"),
    }


class Transformer:
    def __init__(self, fluid):
        self.fluid, self.layers = fluid, fluid.layers

    def fc(self, x, size, act=None, bias_attr=None):
        return self.layers.fc(x, size, num_flatten_dims=2, act=act, bias_attr=bias_attr)

    def norm(self, x):
        attr, one, zero = self.fluid.ParamAttr, self.fluid.initializer.Constant(1.0), self.fluid.initializer.Constant(0)
        x = self.layers.layer_norm(
            x, begin_norm_axis=2, param_attr=attr(initializer=one), bias_attr=attr(initializer=zero)
        )
        return self.layers.dropout(x, dropout_prob=0.0)

    def heads(self, x):
        x = self.layers.reshape(x, [0, 0, HEADS, SIZE // HEADS], inplace=True)
        return self.layers.transpose(x, [0, 2, 1, 3])

    def attention(self, queries, keys, bias):
        query, key, value = [self.heads(self.fc(x, SIZE, bias_attr=False)) for x in (queries, keys, keys)]
        scores = self.layers.matmul(query, key, transpose_y=True, alpha=(SIZE // HEADS) ** -0.5)
        weights = self.layers.softmax(self.layers.elementwise_add(scores, bias))
        mixed = self.layers.transpose(self.layers.matmul(weights, value), [0, 2, 1, 3])
        return self.fc(self.layers.reshape(mixed, [0, 0, SIZE]), SIZE, bias_attr=False)

    def feed_forward(self, x):
        return self.fc(self.fc(x, 2 * SIZE, act="relu"), SIZE)

    def embedded(self, name):
        data, layers, attr = self.layers.data, self.layers, self.fluid.ParamAttr
        words, places = data(name, [LENGTH, 1], dtype="int64"), data(name + "_places", [LENGTH, 1], dtype="int64")
        table = attr(name="words", initializer=self.fluid.initializer.Normal(0.0, SIZE**-0.5))
        found = layers.scale(layers.embedding(words, [WORDS, SIZE], padding_idx=1, param_attr=table), SIZE**0.5)
        at = layers.embedding(places, [LENGTH, SIZE], param_attr=attr(name="places", trainable=False))
        at.stop_gradient = True
        return layers.dropout(layers.elementwise_add(found, at), dropout_prob=0.0)

    def bias(self, name):
        return self.layers.data(name, [HEADS, LENGTH, LENGTH])

    def encoded(self):
        x, bias = self.embedded("source"), self.bias("source_bias")
        for _ in range(LAYERS):
            normed = self.norm(x)
            x = x + self.attention(normed, normed, bias)
            x = x + self.feed_forward(self.norm(x))
        return self.norm(x)

    def logits(self):
        memory = self.encoded()
        x, to_come, cross = self.embedded("target"), self.bias("target_bias"), self.bias("cross_bias")
        for _ in range(LAYERS):
            normed = self.norm(x)
            x = x + self.attention(normed, normed, to_come)
            x = x + self.attention(self.norm(x), memory, cross)
            x = x + self.feed_forward(self.norm(x))
        table = self.fluid.default_main_program().global_block().var("words")
        return self.layers.matmul(self.layers.reshape(self.norm(x), [-1, SIZE]), table, transpose_y=True)


def transformer(fluid):
    layers = fluid.layers
    logits = Transformer(fluid).logits()
    test = fluid.default_main_program().clone(for_test=True)
    smooth = layers.label_smooth(
        layers.one_hot(layers.data("next", [1], dtype="int64"), depth=WORDS), epsilon=0.1, dtype="float32"
    )
    counts = layers.data("counts", [1])
    cost = layers.softmax_with_cross_entropy(logits, smooth, soft_label=True)
    total = layers.reduce_sum(layers.elementwise_mul(cost, counts))
    count = layers.reduce_sum(counts)
    count.stop_gradient = True
    loss = layers.elementwise_div(total, count)
    rate = layers.scale(layers.noam_decay(SIZE, 4), 2.0)
    fluid.optimizer.Adam(rate, beta1=0.9, beta2=0.997, epsilon=1e-9).minimize(loss)

    def finish(fluid, exe, scope):
        """Words that follow from the likeliest ones so far."""
        feed = sentences(9)
        feed = {name: value for name, value in feed.items() if name not in ("next", "counts")}
        feed["target"][:, 1:] = 1
        for place in range(1, LENGTH):
            (scores,) = exe.run(test, feed=feed, fetch_list=[logits.name])
            feed["target"][:, place, 0] = scores.reshape(3, LENGTH, WORDS)[:, place - 1].argmax(1)
        yield "words", feed["target"]
        yield "scores", scores

    return {"fetch": [loss, total, rate], "finish": finish}


CASES.append(
    TrainCase(
        "transformer",
        transformer,
        sentences,
        3,
        keep="fetches",
        rtol=1e-4,
        reason="three steps of float32 training amplify rounding",
    )
)
