"""Operations are counted as real Fluid counts them; the numbers are what it gave."""

import pytest

import paddle.fluid as fluid
from refluid.compression.counting import count_operations, count_parameters

layers = fluid.layers


def data(*shape):
    return layers.data("x", list(shape))


@pytest.mark.parametrize(
    ("build", "operations"),
    [
        (lambda: layers.conv2d(data(3, 6, 6), 4, 3), 3456),
        (lambda: layers.conv2d(data(4, 6, 6), 4, 3, groups=2), 1152),
        (lambda: layers.conv2d(data(4, 6, 6), 4, 3, groups=4, use_cudnn=False), 288),
        (lambda: layers.fc(data(16), 10), 320),
        (lambda: layers.pool2d(data(4, 6, 6), 3, "max", 1), 576),
        (lambda: layers.pool2d(data(4, 6, 6), pool_type="avg", global_pooling=True), 4),
        (lambda: layers.relu(data(4, 6, 5)), 120),
        (lambda: layers.batch_norm(data(4, 6, 5)), 120),
        (lambda: layers.tanh(data(4, 6, 5)), 0),
    ],
)
def test_operations_of(build, operations):
    build()
    assert count_operations(fluid.default_main_program()) == operations


def test_parameters_and_convolutions_alone():
    layers.fc(layers.conv2d(data(3, 6, 6), 4, 3, act="relu"), 5, bias_attr=False)
    assert count_parameters(fluid.default_main_program()) == 4 * 27 + 4 + 64 * 5
    assert count_operations(fluid.default_main_program(), only_convolutions=True) == 3456
