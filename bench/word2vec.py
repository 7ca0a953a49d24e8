"""Skip-gram with negative sampling: a word, one that is near it, and NEGATIVE others; words follow Zipf's law.

W2V_DISTRIBUTED=1 makes both tables is_distributed. Runs locally, and as a job by `ps.py --model word2vec`.
"""

import os

import numpy as np

import common

NAME, BATCH, WARMUP, STEPS, REPEATS = "word2vec", 1024, 5, 15, 5
WORDS, WIDTH, NEGATIVE = 100000, 64, 5
TOPICS = 100  # words of the same topic are near each other
POOL = 40


def data(n, seed):
    """n batches of [center, near, NEGATIVE others, label]; POOL distinct ones."""
    rng = np.random.RandomState(seed)
    share = 1.0 / np.arange(1, WORDS + 1)
    share /= share.sum()
    pool = []
    for _ in range(min(n, POOL)):
        words = rng.choice(WORDS, (BATCH, 2 + NEGATIVE), p=share)
        # the same topic as the center, and about as frequent as the word that was drawn
        words[:, 1] = np.minimum(words[:, 1] // TOPICS * TOPICS + words[:, 0] % TOPICS, WORDS - 1)
        label = np.zeros((BATCH, 1 + NEGATIVE), "float32")
        label[:, 0] = 1
        pool.append([words[:, i : i + 1].astype("int64") for i in range(2 + NEGATIVE)] + [label])
    return [pool[i % len(pool)] for i in range(n)]


def samples(batch):
    """The same batch as a list of python samples, for files."""
    columns = [value.tolist() for value in batch]
    return list(zip(*columns))


def build(fluid):
    L = fluid.layers
    words = [L.data("word%d" % i, [1], dtype="int64") for i in range(2 + NEGATIVE)]
    label = L.data("is_near", [1 + NEGATIVE])
    distributed = os.environ.get("W2V_DISTRIBUTED") == "1"

    def vectors(ids, name):
        begin = fluid.initializer.Uniform(-0.5 / WIDTH, 0.5 / WIDTH)
        return L.embedding(
            ids,
            [WORDS, WIDTH],
            is_sparse=True,
            is_distributed=distributed,
            param_attr=fluid.ParamAttr(name=name, initializer=begin),
        )

    center = vectors(words[0], "centers")
    products = [L.elementwise_mul(center, vectors(word, "contexts")) for word in words[1:]]
    scores = L.concat([L.reduce_sum(each, dim=1, keep_dim=True) for each in products], axis=1)
    cost = L.sigmoid_cross_entropy_with_logits(scores, label)
    loss = L.mean(L.reduce_sum(cost, dim=1, keep_dim=True))
    return dict(loss=loss, feed=words + [label])


def optimizer(fluid):
    return fluid.optimizer.SGD(4.0)


if __name__ == "__main__":
    common.main(globals())
