"""XLA, as the tests set it up, computes what it should."""

import numpy as np

import paddle.fluid as fluid


def _noise(*shape):
    return np.random.RandomState(len(shape)).uniform(-1, 1, shape).astype("float32")


def test_a_bias_before_batch_norm_has_no_gradient_in_any_step():
    layers = fluid.layers

    def normalised(x, channels):
        return layers.batch_norm(layers.conv2d(x, channels, 3, padding=1), act="relu")

    fine = normalised(layers.data("image", [3, 12, 12]), 4)
    coarse = normalised(layers.pool2d(fine, 2, "max", 2), 8)
    merged = layers.concat([layers.conv2d_transpose(coarse, 4, filter_size=2, stride=2), fine], 1)
    scores = layers.reshape(layers.transpose(layers.conv2d(merged, 5, 3, padding=1), [0, 2, 3, 1]), [-1, 5])
    label = layers.data("label", [1], dtype="int64")
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
    fluid.optimizer.SGD(0.05).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"image": _noise(2, 3, 12, 12), "label": np.arange(288).reshape(-1, 1) % 5}
    for _ in range(3):
        assert abs(exe.run(feed=feed, fetch_list=["conv2d_0.b_0@GRAD"])[0]).max() < 1e-5
