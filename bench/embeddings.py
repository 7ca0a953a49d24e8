"""A two-tower recommender: twenty id features in tables of 100000 rows, dot product, Adagrad.

EMBEDDINGS_SPARSE=0 makes the gradients of the tables dense.
"""

import os
import numpy as np
import common

NAME, BATCH, WARMUP, STEPS, REPEATS = "embeddings", 256, 5, 20, 5
ROWS, DIM, FEATURES = 100000, 32, 10
SPARSE = os.environ.get("EMBEDDINGS_SPARSE", "1") == "1"


def data(n, seed):
    rng = np.random.RandomState(seed)
    pool = []
    for _ in range(min(n, 40)):
        ids = [(rng.zipf(1.3, (BATCH, 1)) % ROWS).astype("int64") for _ in range(2 * FEATURES)]
        score = ((ids[0] % 5) + (ids[FEATURES] % 3) > 2).astype("float32")
        pool.append(tuple(ids) + (score,))
    return [pool[i % len(pool)] for i in range(n)]


def build(fluid):
    L = fluid.layers
    ids = [L.data("id%d" % i, [1], dtype="int64") for i in range(2 * FEATURES)]
    score = L.data("score", [1])

    def tower(features, table):
        looked_up = [
            L.embedding(f, [ROWS, DIM], is_sparse=SPARSE, param_attr=fluid.ParamAttr(name=table)) for f in features
        ]
        return L.fc(L.fc(L.concat(looked_up, axis=1), 128, act="relu"), 64)

    users, items = tower(ids[:FEATURES], "users"), tower(ids[FEATURES:], "items")
    guess = L.reduce_sum(users * items, dim=1, keep_dim=True)
    loss = L.mean(L.sigmoid_cross_entropy_with_logits(guess, score))
    return dict(loss=loss, feed=ids + [score])


def optimizer(fluid):
    return fluid.optimizer.Adagrad(0.05)


if __name__ == "__main__":
    common.main(globals())
