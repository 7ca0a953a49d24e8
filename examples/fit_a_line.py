"""Fits a line to Boston housing prices: the first chapter of every Fluid course.

python examples/fit_a_line.py                            # downloads the data
REFLUID_SYNTHETIC_DATA=1 python examples/fit_a_line.py   # synthetic data of the same format
"""

import numpy as np

import paddle
import paddle.fluid as fluid

BATCH_SIZE = 20
EPOCHS = 60


def build():
    x = fluid.layers.data(name="x", shape=[13], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    y_predict = fluid.layers.fc(input=x, size=1, act=None)
    cost = fluid.layers.square_error_cost(input=y_predict, label=y)
    return [x, y], y_predict, fluid.layers.mean(cost)


def main():
    fluid.default_startup_program().random_seed = 90
    feed_list, y_predict, avg_cost = build()
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(learning_rate=0.01).minimize(avg_cost)

    train_reader = paddle.batch(
        paddle.reader.shuffle(paddle.dataset.uci_housing.train(), buf_size=500), batch_size=BATCH_SIZE
    )
    test_reader = paddle.batch(paddle.dataset.uci_housing.test(), batch_size=BATCH_SIZE)

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    feeder = fluid.DataFeeder(place=place, feed_list=feed_list)
    exe.run(fluid.default_startup_program())

    for epoch in range(EPOCHS):
        for data in train_reader():
            (loss,) = exe.run(feed=feeder.feed(data), fetch_list=[avg_cost])
        if epoch % 10 == 9:
            test_costs = [
                exe.run(test_program, feed=feeder.feed(data), fetch_list=[avg_cost])[0] for data in test_reader()
            ]
            print("epoch %2d  train cost %7.3f  test cost %7.3f" % (epoch + 1, loss[0], np.mean(test_costs)))

    data = next(test_reader())
    (prices,) = exe.run(test_program, feed=feeder.feed(data), fetch_list=[y_predict])
    for (_, truth), predicted in zip(data[:5], prices[:5]):
        print("price %5.1f  predicted %5.1f" % (truth[0], predicted[0]))


if __name__ == "__main__":
    main()
