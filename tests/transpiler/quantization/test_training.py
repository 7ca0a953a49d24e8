"""Rounding in training: which operators read what. tests/golden/test_quantized.py compares with real Fluid."""

import paddle.fluid as fluid
from refluid.transpiler.quantization.fake_ops import Scheme, State
from refluid.transpiler.quantization.training import QuantizeInputs, RoundActivations, WatchOutputs

WHOLE = Scheme("abs_max")


def build():
    x = fluid.layers.data("x", [4])
    hidden = fluid.layers.fc(x, 3, act="relu", bias_attr=False)
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 2, bias_attr=False))
    return fluid.default_main_program(), loss


def test_inputs_and_gradients_read_rounded_values_and_gradients_pass_straight_through():
    program, loss = build()
    fluid.optimizer.SGD(0.1).minimize(loss)
    rewritten, states = QuantizeInputs(("mul",), WHOLE, WHOLE).apply(program)
    assert states == []
    ops = {op.type: op for op in rewritten.global_block().ops}
    gradient = ops["mul_grad"]  # of the first product, the last in the program
    assert gradient.input("Y") == ["fc_0.w_0.quantized.dequantized"]
    assert gradient.output("Y@GRAD") == ["fc_0.w_0@GRAD"]
    assert "fake_quantize_abs_max" not in [op.type for op in program.global_block().ops]


def test_a_variable_that_two_operators_read_is_quantised_once():
    x = fluid.layers.data("x", [4])
    for _ in range(2):
        fluid.layers.fc(x, 3, bias_attr=False)
    rewritten, _ = QuantizeInputs(("mul",), WHOLE, WHOLE).apply(fluid.default_main_program())
    quantised = [op.input("X")[0] for op in rewritten.global_block().ops if op.type == "fake_quantize_abs_max"]
    assert sorted(quantised) == ["fc_0.w_0", "fc_1.w_0", "x"]


def test_scales_that_outlive_a_batch_are_state():
    program, _ = build()
    _, states = QuantizeInputs(("mul",), WHOLE, Scheme("moving_average_abs_max")).apply(program)
    assert State("x.scale", (1,), 0.001) in states
    assert [state.value for state in states if state.name.startswith(("accum", "state"))] == [1.0] * 4
    _, states = QuantizeInputs(("mul",), WHOLE, Scheme("range_abs_max", window=7)).apply(program)
    assert State("@STEP_COUNTER@", (1,), 0, "int64") in states
    assert [state.shape for state in states if state.name.startswith("scales")] == [(7,), (7,)]


def test_tests_read_scales_and_do_not_change_them():
    program, _ = build()
    rewritten, states = QuantizeInputs(("mul",), WHOLE, Scheme("range_abs_max"), is_test=True).apply(program)
    assert [state.name for state in states] == ["x.scale", "fc_0.tmp_1.scale"]
    op = next(op for op in rewritten.global_block().ops if op.type == "fake_quantize_range_abs_max")
    assert (op.input_arg_names, op.output("OutScales")) == (["x", "x.scale"], [])


def test_operators_in_a_skipped_name_scope_are_left_alone():
    x = fluid.layers.data("x", [4])
    with fluid.name_scope("skip_quant"):
        fluid.layers.fc(x, 3, bias_attr=False)
    rewritten, _ = QuantizeInputs(("mul",), WHOLE, WHOLE, skip=("skip_quant",)).apply(fluid.default_main_program())
    assert [op.type for op in rewritten.global_block().ops] == ["mul"]


def test_integers_are_not_rounded():
    ids = fluid.layers.data("ids", [4], dtype="int64")
    fluid.layers.elementwise_add(ids, ids)
    rewritten, states = RoundActivations(("elementwise_add",), WHOLE).apply(fluid.default_main_program())
    assert (len(rewritten.global_block().ops), states) == (1, [])


def test_outputs_are_watched_at_the_end():
    program, _ = build()
    rewritten, states = WatchOutputs(("mul", "relu")).apply(program)
    assert [op.type for op in rewritten.global_block().ops[-3:]] == ["moving_average_abs_max_scale"] * 3
    assert "fc_0.tmp_0@scale" in [state.name for state in states]


def test_what_is_quantised_is_not_rounded_again():
    program, _ = build()
    rewritten, _ = QuantizeInputs(("mul",), WHOLE, WHOLE).apply(program)
    again, states = RoundActivations(("mul",), Scheme("moving_average_abs_max")).apply(rewritten)
    assert (len(again.global_block().ops), states) == (len(rewritten.global_block().ops), [])
