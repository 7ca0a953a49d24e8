"""Two transformer encoder layers over fixed-length sentences: batched products, softmax, layer_norm; Adam."""

import numpy as np
import common

NAME, BATCH, WARMUP, STEPS, REPEATS = "attention", 16, 4, 10, 5
LENGTH, WIDTH, HEADS, INNER, WORDS = 64, 256, 4, 1024, 5000


def data(n, seed):
    rng = np.random.RandomState(seed)
    pool = []
    for _ in range(min(n, 40)):
        ids = rng.randint(0, WORDS, (BATCH, LENGTH, 1)).astype("int64")
        label = (ids[:, 0] + rng.randint(0, 2, (BATCH, 1)) * 7) % 10
        pool.append((ids, label.astype("int64")))
    return [pool[i % len(pool)] for i in range(n)]


def attention(L, x):
    def heads(y):
        return L.transpose(L.reshape(y, [0, 0, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    q, k, v = [heads(L.fc(x, WIDTH, num_flatten_dims=2)) for _ in range(3)]
    weights = L.softmax(L.matmul(q, k, transpose_y=True, alpha=(WIDTH // HEADS) ** -0.5))
    mixed = L.reshape(L.transpose(L.matmul(weights, v), [0, 2, 1, 3]), [0, 0, WIDTH])
    return L.fc(mixed, WIDTH, num_flatten_dims=2)


def build(fluid):
    L = fluid.layers
    ids = L.data("ids", [LENGTH, 1], dtype="int64")
    label = L.data("label", [1], dtype="int64")
    x = L.embedding(ids, [WORDS, WIDTH])
    for _ in range(2):
        x = L.layer_norm(x + attention(L, x), begin_norm_axis=2)
        inner = L.fc(x, INNER, num_flatten_dims=2, act="relu")
        x = L.layer_norm(x + L.fc(inner, WIDTH, num_flatten_dims=2), begin_norm_axis=2)
    p = L.fc(L.reduce_mean(x, dim=1), 10, act="softmax")
    return dict(loss=L.mean(L.cross_entropy(p, label)), feed=[ids, label])


def optimizer(fluid):
    return fluid.optimizer.Adam(0.0005)


if __name__ == "__main__":
    common.main(globals())
