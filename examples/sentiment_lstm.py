"""Classifies reviews as friendly or not, with an LSTM over reviews of any length.

The reviews are synthetic: words are numbers, and a friendly review has more odd ones. Every batch has other lengths;
the script pads nothing, and the program is compiled for only a handful of sizes.

    python examples/sentiment_lstm.py
"""

import numpy as np

import paddle
import paddle.fluid as fluid

WORDS = 400
LONGEST = 50


def reviews(count, seed):
    """A reader of (words, label)."""

    def reader():
        random = np.random.RandomState(seed)
        for _ in range(count):
            friendly = random.randint(2)
            words = random.randint(0, WORDS // 2, random.randint(5, LONGEST + 1)) * 2
            words += random.rand(len(words)) < (0.7 if friendly else 0.3)
            yield words.tolist(), [friendly]

    return reader


def build():
    words = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    found = fluid.layers.embedding(input=words, size=[WORDS, 32], is_sparse=True)
    rows = fluid.layers.fc(input=found, size=32 * 4)
    hidden, _ = fluid.layers.dynamic_lstm(input=rows, size=32 * 4, use_peepholes=False)
    pooled = fluid.layers.sequence_pool(input=hidden, pool_type="max")
    predicted = fluid.layers.fc(input=pooled, size=2, act="softmax")
    cost = fluid.layers.mean(fluid.layers.cross_entropy(input=predicted, label=label))
    accuracy = fluid.layers.accuracy(input=predicted, label=label)
    return [words, label], cost, accuracy


def main():
    fluid.default_startup_program().random_seed = 3
    feed_list, cost, accuracy = build()
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adagrad(learning_rate=0.05).minimize(cost)

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    feeder = fluid.DataFeeder(feed_list=feed_list, place=place)
    exe.run(fluid.default_startup_program())
    train_reader = paddle.batch(reviews(1600, seed=0), batch_size=16)
    test_reader = paddle.batch(reviews(320, seed=1), batch_size=16)

    for epoch in range(3):
        costs = [exe.run(feed=feeder.feed(data), fetch_list=[cost])[0][0] for data in train_reader()]
        tests = [exe.run(test_program, feed=feeder.feed(data), fetch_list=[accuracy])[0][0] for data in test_reader()]
        print("epoch %d  train cost %.3f  test accuracy %.3f" % (epoch, np.mean(costs), np.mean(tests)))


if __name__ == "__main__":
    main()
