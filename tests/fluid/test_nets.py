"""What nets refuse; what they compute is compared with real Fluid in tests/golden."""

import pytest

import paddle.fluid as fluid


@pytest.fixture(autouse=True)
def fresh_program():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def data(*shape):
    return fluid.layers.data(fluid.unique_name.generate("x"), shape, append_batch_size=False)


@pytest.mark.parametrize(
    ("shapes", "heads", "words"),
    [
        ([(2, 3), (2, 5, 4), (2, 5, 6)], 1, "three dims"),
        ([(2, 3, 8), (2, 5, 4), (2, 5, 6)], 1, "queries and keys must have the same size, got 8 and 4"),
        ([(2, 3, 4), (2, 5, 4), (2, 7, 6)], 1, "keys and values must have the same length, got 5 and 7"),
        ([(2, 3, 4), (2, 5, 4), (2, 5, 6)], 4, "the size of values, 6, is not divisible by 4 heads"),
    ],
)
def test_attention_checks_its_inputs(shapes, heads, words):
    with pytest.raises(ValueError, match=words):
        fluid.nets.scaled_dot_product_attention(*(data(*shape) for shape in shapes), num_heads=heads)


def test_img_conv_group_needs_an_entry_for_each_convolution():
    with pytest.raises(ValueError, match="conv_padding has 3 entries for 2 convolutions"):
        fluid.nets.img_conv_group(data(2, 1, 8, 8), [2, 2], 2, conv_padding=[1, 1, 1])
    with pytest.raises(TypeError, match="conv_num_filter must be a list or tuple, not int"):
        fluid.nets.img_conv_group(data(2, 1, 8, 8), 2, 2)


def test_run_check_trains_and_says_so(capsys):
    fluid.install_check.run_check()
    assert "refluid works on" in capsys.readouterr().out
    assert fluid.default_main_program().global_block().ops == []
