"""sentiment_lstm.py, modernised: a flax attention block instead of the LSTM, optax instead of Adagrad, and StableHLO.

Everything else is as it was: the words are looked up, the classes predicted and the batches fed by Fluid. The guide
"Modernise a Fluid model, one layer at a time" goes through the changes.

    python examples/modern_sentiment.py             # in this process
    python examples/modern_sentiment.py --launch    # with 2 parameter servers and 2 trainers
"""

import argparse
import os
import subprocess
import sys
import tempfile

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
from sentiment_lstm import LONGEST, WORDS, reviews

import paddle
import paddle.fluid as fluid
import refluid

BATCH = 16
REVIEWS = 1600  # in an epoch


class Encoder(nn.Module):
    """Self-attention over the words of a review, then their mean."""

    heads: int = 4

    @nn.compact
    def __call__(self, words, lengths, deterministic):
        real = jnp.arange(words.shape[1]) < lengths.reshape(-1, 1)
        words = words + self.param("positions", nn.initializers.normal(0.02), words.shape[1:])
        attention = nn.MultiHeadDotProductAttention(self.heads, dropout_rate=0.1, deterministic=deterministic)
        words = words + attention(nn.LayerNorm()(words), mask=real[:, None, None, :])
        words = words + nn.Dense(words.shape[-1])(nn.gelu(nn.Dense(64)(nn.LayerNorm()(words))))
        return jnp.where(real[:, :, None], words, 0).sum(1) / lengths.reshape(-1, 1)


def build():
    words = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    found = fluid.layers.embedding(input=words, size=[WORDS, 32], is_sparse=True)
    padding = fluid.layers.fill_constant([1], "float32", 0.0)
    rows, lengths = fluid.layers.sequence_pad(found, padding, maxlen=LONGEST)
    pooled = refluid.flax_layer(Encoder(), rows, fluid.layers.cast(lengths, "int32"), name="encoder")
    predicted = fluid.layers.fc(input=pooled, size=2, act="softmax")
    cost = fluid.layers.mean(fluid.layers.cross_entropy(input=predicted, label=label))
    accuracy = fluid.layers.accuracy(input=predicted, label=label)
    return [words, label], predicted, cost, accuracy


def optimizer(steps):
    rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, warmup_steps=20, decay_steps=steps)
    decayed = optax.adamw(rate, weight_decay=1e-3, mask=lambda params: {n: n.endswith("kernel") for n in params})
    return refluid.OptaxOptimizer(decayed, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0))


def main(epochs):
    fluid.default_startup_program().random_seed = 3
    feed_list, predicted, cost, accuracy = build()
    test_program = fluid.default_main_program().clone(for_test=True)
    parts, part = int(os.environ.get("PADDLE_TRAINERS_NUM", "1")), int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    optimizer(epochs * REVIEWS // BATCH // parts).minimize(cost)

    exe = fluid.Executor(fluid.CPUPlace())
    feeder = fluid.DataFeeder(feed_list=feed_list, place=fluid.CPUPlace())
    program = fluid.default_main_program()
    if parts > 1:
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(part, pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], trainers=parts)
        if os.environ["TRAINING_ROLE"] == "PSERVER":
            server, startup = transpiler.get_pserver_programs(os.environ["PADDLE_CURRENT_ENDPOINT"])
            exe.run(startup)
            exe.run(server)
            return
        program = transpiler.get_trainer_program()

    exe.run(fluid.default_startup_program())
    for epoch in range(epochs):
        batches = list(paddle.batch(reviews(REVIEWS, seed=epoch), batch_size=BATCH)())[part::parts]
        costs = [exe.run(program, feed=feeder.feed(data), fetch_list=[cost])[0][0] for data in batches]
        tests = paddle.batch(reviews(320, seed=100), batch_size=BATCH)()
        found = [exe.run(test_program, feed=feeder.feed(data), fetch_list=[accuracy])[0][0] for data in tests]
        print("epoch %d  train cost %.3f  test accuracy %.3f" % (epoch, np.mean(costs), np.mean(found)), flush=True)

    if part == 0:
        feed = feeder.feed(next(paddle.batch(reviews(BATCH, seed=100), batch_size=BATCH)()))
        expected = exe.run(test_program, feed=feed, fetch_list=[predicted])[0]
        with tempfile.TemporaryDirectory() as folder:
            sizes = {"words": (BATCH, BATCH * LONGEST, LONGEST)}
            refluid.export(test_program, folder, sequences=sizes, feeds=["words"], fetches=[predicted])
            (exported,) = refluid.load(folder)(words=feed["words"])
        print("exported   largest difference %.1e" % np.abs(exported - expected).max())
    exe.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--launch", action="store_true", help="train with 2 servers and 2 trainers")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    if not args.launch:
        main(args.epochs)
        sys.exit()
    launcher = [sys.executable, "-m", "paddle.distributed.launch_ps", "--print_config", "False"]
    script = [os.path.abspath(__file__), "--epochs", str(args.epochs)]
    sys.exit(subprocess.call([*launcher, "--server_num", "2", "--worker_num", "2", *script]))
