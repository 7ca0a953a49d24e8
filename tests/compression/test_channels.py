"""What goes with a channel. tests/golden/test_compressed.py compares a pruned net with real Fluid."""

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.compression.channels import Removals, optimizer_state, remove, spread
from refluid.errors import OpError

layers = fluid.layers


def image(channels=4):
    return layers.data("image", [channels, 6, 6])


def removed(parameter, channels=(0,)):
    found = spread(fluid.default_main_program(), parameter, channels).parameters
    return {key: sorted(positions) for key, positions in found.items()}


def test_a_bias_statistics_and_the_next_convolution_lose_the_channel():
    hidden = layers.batch_norm(layers.conv2d(image(), 3, 3), act="relu")
    layers.conv2d(hidden, 2, 1, bias_attr=False)
    assert removed("conv2d_0.w_0", [1]) == {
        ("conv2d_0.w_0", 0): [1],
        ("conv2d_0.b_0", 0): [1],
        **{(f"batch_norm_0.{name}", 0): [1] for name in ("w_0", "b_0", "w_1", "w_2")},
        ("conv2d_1.w_0", 1): [1],
    }


def test_a_depthwise_convolution_loses_what_it_reads():
    hidden = layers.conv2d(image(), 3, 3, bias_attr=False)
    hidden = layers.conv2d(hidden, 3, 3, groups=3, bias_attr=False, use_cudnn=False)
    layers.conv2d(hidden, 2, 1, bias_attr=False)
    expected = {("conv2d_0.w_0", 0): [0], ("depthwise_conv2d_0.w_0", 0): [0], ("conv2d_1.w_0", 1): [0]}
    assert removed("conv2d_0.w_0") == removed("depthwise_conv2d_0.w_0") == expected


def test_what_is_added_loses_the_same_channels():
    sides = [layers.conv2d(image(), 3, 1, bias_attr=False) for _ in range(3)]
    layers.elementwise_mul(layers.sum(sides[:2]), sides[2])
    assert removed("conv2d_1.w_0", [2]) == {(f"conv2d_{i}.w_0", 0): [2] for i in range(3)}


def test_channels_move_when_they_are_concatenated():
    sides = [layers.conv2d(image(), width, 1, bias_attr=False) for width in (3, 2)]
    joined = layers.concat(sides, axis=1)
    layers.conv2d(joined, 5, 1, bias_attr=False)
    assert removed("conv2d_1.w_0", [1]) == {("conv2d_1.w_0", 0): [1], ("conv2d_2.w_0", 1): [4]}


def test_channels_of_a_sum_of_concatenations_are_found_in_their_parts():
    joined = layers.concat([layers.conv2d(image(), width, 1, bias_attr=False) for width in (3, 2)], axis=1)
    layers.elementwise_add(joined, layers.conv2d(image(), 5, 1, bias_attr=False))
    assert removed("conv2d_2.w_0", [1, 4]) == {
        ("conv2d_2.w_0", 0): [1, 4],
        ("conv2d_0.w_0", 0): [1],
        ("conv2d_1.w_0", 0): [1],
    }


def test_a_product_loses_all_rows_of_a_channel():
    pooled = layers.pool2d(layers.conv2d(image(), 3, 1, bias_attr=False), 3, "avg", 3)  # 2 x 2 are left
    layers.fc(pooled, 5)
    assert removed("conv2d_0.w_0", [2]) == {("conv2d_0.w_0", 0): [2], ("fc_0.w_0", 0): [8, 9, 10, 11]}
    assert removed("fc_0.w_0", [4]) == {("fc_0.w_0", 1): [4], ("fc_0.b_0", 0): [4]}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: layers.reshape(x, [-1, 12]), "cannot follow the channels that conv2d_0.w_0 loses"),
        (lambda x: layers.conv2d(x, 4, 1, groups=2), "convolutions in groups need all their channels"),
        (lambda x: layers.mul(layers.data("y", [3]), x), "a product of two activations needs all channels"),
    ],
)
def test_channels_that_cannot_be_followed_are_an_error(build, message):
    build(layers.conv2d(image(), 4, 1, bias_attr=False))
    with pytest.raises(OpError, match=message):
        removed("conv2d_0.w_0")


def test_a_parameter_that_nothing_multiplies_is_an_error():
    layers.conv2d(image(), 4, 1)
    with pytest.raises(ValueError, match="cannot prune conv2d_0.b_0: no convolution or fc of the program uses it"):
        removed("conv2d_0.b_0")


def test_shapes_in_a_program_follow():
    hidden = layers.conv2d(image(), 3, 1, bias_attr=False)
    hidden = layers.conv2d(hidden, 3, 3, groups=3, bias_attr=False, use_cudnn=False)
    loss = layers.mean(layers.fc(hidden, 2))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    program = fluid.default_main_program()
    block = program.global_block()
    spread(program, "conv2d_0.w_0", [1]).apply(program)
    assert block.var("conv2d_0.tmp_0").shape == (-1, 2, 6, 6)
    assert block.var("fc_0.w_0").shape == block.var("fc_0.w_0@GRAD").shape == (2 * 16, 2)
    assert {block.var(name).shape for name in optimizer_state(block)["fc_0.w_0"]} == {(32, 2)}
    assert [op.attr("groups") for op in block.ops if op.type.startswith("depthwise")] == [2, 2]


def test_values_are_cut_or_set_to_zero():
    value = np.arange(6.0).reshape(2, 3)
    removals = Removals({("w", 1): {0, 2}, ("w", 0): {1}})
    assert removals.cut("w", value).tolist() == [[1]]
    assert removals.cut("w", value, keep=0).tolist() == [[1], [4]]
    assert remove(value, [0], 1, lazy=True).tolist() == [[0, 1, 2], [0, 4, 5]]
    assert value[0, 1] == 1
