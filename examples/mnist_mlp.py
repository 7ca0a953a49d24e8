"""Classifies handwritten digits with three fully connected layers.

python examples/mnist_mlp.py                            # downloads MNIST
REFLUID_SYNTHETIC_DATA=1 python examples/mnist_mlp.py   # synthetic digits in the same format
"""

import argparse
import time

import numpy as np

import paddle
import paddle.fluid as fluid


def multilayer_perceptron(img):
    hidden = fluid.layers.fc(input=img, size=200, act="relu")
    hidden = fluid.layers.fc(input=hidden, size=200, act="relu")
    return fluid.layers.fc(input=hidden, size=10, act="softmax")


def evaluate(exe, program, feeder, reader, fetch_list):
    accuracy = fluid.metrics.Accuracy()
    losses = []
    for data in reader():
        loss, acc = exe.run(program, feed=feeder.feed(data), fetch_list=fetch_list)
        accuracy.update(value=acc, weight=len(data))
        losses.append(loss[0])
    return np.mean(losses), accuracy.eval()[0]


def show(image):
    """A digit as text."""
    for row in image.reshape(28, 28)[2:27:2]:
        print("    " + "".join("    .-+*%@"[int((pixel + 1) * 4.99)] for pixel in row))


def main(epochs, batch_size):
    fluid.default_startup_program().random_seed = 1
    img = fluid.layers.data(name="img", shape=[1, 28, 28], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    prediction = multilayer_perceptron(img)
    avg_loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    acc = fluid.layers.accuracy(input=prediction, label=label)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.001).minimize(avg_loss)

    train_reader = paddle.batch(
        paddle.reader.shuffle(paddle.dataset.mnist.train(), buf_size=5000), batch_size=batch_size, drop_last=True
    )
    test_reader = paddle.batch(paddle.dataset.mnist.test(), batch_size=200)

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    feeder = fluid.DataFeeder(feed_list=[img, label], place=place)
    exe.run(fluid.default_startup_program())

    for epoch in range(epochs):
        start = time.time()
        for step, data in enumerate(train_reader()):
            loss, accuracy = exe.run(feed=feeder.feed(data), fetch_list=[avg_loss, acc])
            if step % 30 == 0:
                print("epoch %d  step %3d  loss %.4f  accuracy %.3f" % (epoch, step, loss[0], accuracy[0]))
        seconds = time.time() - start
        test_loss, test_accuracy = evaluate(exe, test_program, feeder, test_reader, [avg_loss, acc])
        print(
            "epoch %d  done in %.1f s  test loss %.4f  test accuracy %.3f" % (epoch, seconds, test_loss, test_accuracy)
        )

    sample = next(paddle.dataset.mnist.test()())
    (probabilities,) = exe.run(test_program, feed=feeder.feed([sample]), fetch_list=[prediction])
    print("\nThe first test digit is a %d; the network says %d:\n" % (sample[1], probabilities[0].argmax()))
    show(sample[0])
    return test_accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=64)
    arguments = parser.parse_args()
    main(arguments.epochs, arguments.batch_size)
