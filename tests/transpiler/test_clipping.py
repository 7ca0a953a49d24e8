"""Clipping by norms on servers: sums over slices, then over servers, then the rest."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid
from programs_to_distribute import FIRST, SECOND, assert_survives_protobuf, config, lines, regression, transpile
from refluid.errors import OpError


def blocks_of(program):
    return [lines(block) for block in program.blocks[1:]]


def test_a_global_norm_is_summed_here_then_over_servers_before_any_update():
    regression(size=2, clip=fluid.clip.GradientClipByGlobalNorm(1.0))
    program = transpile().get_pserver_program(FIRST)
    known, bias, weights = blocks_of(program)
    assert known == [
        "fc_0.b_0@GRAD = sum(fc_0.b_0@GRAD.trainer_0, fc_0.b_0@GRAD.trainer_1)",
        "fc_0.b_0@GRAD = scale(fc_0.b_0@GRAD)",
        "fc_0.w_0@GRAD.block1 = sum(fc_0.w_0@GRAD.block1.trainer_0, fc_0.w_0@GRAD.block1.trainer_1)",
        "fc_0.w_0@GRAD.block1 = scale(fc_0.w_0@GRAD.block1)",
        "fill_constant_0.tmp_0 = fill_constant()",
        "square_0.tmp_0 = square(fc_0.b_0@GRAD)",
        "reduce_sum_0.tmp_0 = reduce_sum(square_0.tmp_0)",
        "square_1.tmp_0 = square(fc_0.w_0@GRAD.block1)",
        "reduce_sum_1.tmp_0 = reduce_sum(square_1.tmp_0)",
        "sum_0.tmp_0 = sum(reduce_sum_0.tmp_0, reduce_sum_1.tmp_0)",
        "sum_0.tmp_0@TOTAL = server_sum(sum_0.tmp_0)",
        "sqrt_0.tmp_0 = sqrt(sum_0.tmp_0@TOTAL)",
        "elementwise_max_0.tmp_0 = elementwise_max(fill_constant_0.tmp_0, sqrt_0.tmp_0)",
        "elementwise_div_0.tmp_0 = elementwise_div(fill_constant_0.tmp_0, elementwise_max_0.tmp_0)",
    ]
    assert bias == [
        "elementwise_mul_0.tmp_0 = elementwise_mul(fc_0.b_0@GRAD, elementwise_div_0.tmp_0)",
        "fc_0.b_0 = sgd(fc_0.b_0, elementwise_mul_0.tmp_0, learning_rate_0)",
    ]
    assert weights[0] == "elementwise_mul_1.tmp_0 = elementwise_mul(fc_0.w_0@GRAD.block1, elementwise_div_0.tmp_0)"
    (op,) = [op for op in program.block(1).ops if op.type == "server_sum"]
    assert (op.attr("endpoints"), op.attr("key")) == ([FIRST, SECOND], "sum_0.tmp_0")
    assert_survives_protobuf(program)


def test_norms_of_slices_are_spelled_out_and_summed_in_one_exchange():
    regression(fluid.optimizer.SGD(0.1), size=8, clip=fluid.clip.GradientClipByNorm(1.0))
    program = transpile(config(min_block_size=4)).get_pserver_program(FIRST)
    known, *updates = blocks_of(program)
    assert [line.split("(")[0] for line in known if "server_sum" in line] == [
        "clip_by_norm_0.tmp_0.sum@TOTAL = server_sum",
        "clip_by_norm_1.tmp_0.sum@TOTAL = server_sum",
    ]
    assert all("server_sum" in line for line in known[-2:])
    assert updates[0] == [
        "clip_by_norm_0.tmp_0.norm = sqrt(clip_by_norm_0.tmp_0.sum@TOTAL)",
        "clip_by_norm_0.tmp_0.max = elementwise_max(clip_by_norm_0.tmp_0.limit, clip_by_norm_0.tmp_0.norm)",
        "clip_by_norm_0.tmp_0.factor = elementwise_div(clip_by_norm_0.tmp_0.limit, clip_by_norm_0.tmp_0.max)",
        "clip_by_norm_0.tmp_0 = elementwise_mul(fc_0.b_0@GRAD.block0, clip_by_norm_0.tmp_0.factor)",
        "fc_0.b_0.block0 = sgd(fc_0.b_0.block0, clip_by_norm_0.tmp_0, learning_rate_0)",
    ]


def test_the_norm_of_a_whole_gradient_is_taken_where_it_is():
    regression(clip=fluid.clip.GradientClipByNorm(1.0))
    assert blocks_of(transpile().get_pserver_program(FIRST)) == [
        [
            "fc_0.b_0@GRAD = sum(fc_0.b_0@GRAD.trainer_0, fc_0.b_0@GRAD.trainer_1)",
            "fc_0.b_0@GRAD = scale(fc_0.b_0@GRAD)",
            "clip_by_norm_0.tmp_0 = clip_by_norm(fc_0.b_0@GRAD)",
            "fc_0.b_0 = sgd(fc_0.b_0, clip_by_norm_0.tmp_0, learning_rate_0)",
        ]
    ]


def test_one_server_sums_by_itself():
    regression(size=2, clip=fluid.clip.GradientClipByGlobalNorm(1.0))
    known, *_ = blocks_of(transpile(pservers=FIRST).get_pserver_program(FIRST))
    assert not [line for line in known if "server_sum" in line]


def test_every_server_that_takes_part_has_the_same_sums_in_the_same_order():
    groups = {"a": "one", "b": "one", "c": "two", "d": "two"}
    parameters = []
    for name, group in groups.items():
        clip = fluid.clip.GradientClipByGlobalNorm(1.0, group)
        attr = fluid.ParamAttr(name, gradient_clip=clip)
        parameters.append(fluid.layers.create_parameter([16], "float32", attr=attr))
    x = fluid.layers.data("x", [16])
    loss = fluid.layers.mean(sum(fluid.layers.elementwise_mul(x, parameter) for parameter in parameters))
    fluid.optimizer.SGD(0.1).minimize(loss)
    transpiler = transpile(config(slice_var_up=False))
    keys = []
    for endpoint in (FIRST, SECOND):
        program = transpiler.get_pserver_program(endpoint)
        keys.append([op.attr("key") for op in program.block(1).ops if op.type == "server_sum"])
    assert keys[0] == keys[1] and len(keys[0]) == 2


def test_what_cannot_be_summed_over_servers_is_an_error():
    regression()
    block = fluid.default_main_program().global_block()
    updates = [op for op in block.ops if op.type == "sgd"]
    with fluid.default_main_program()._optimized_guard([]):
        grads = [block.var(op.input("Grad")[0]) for op in updates]
        largest = [fluid.layers.reduce_max(grad) for grad in grads]
        factor = fluid.layers.elementwise_max(*largest)
        scaled = [fluid.layers.elementwise_div(grad, factor) for grad in grads]
    for op, grad in zip(updates, scaled, strict=True):
        op.inputs["Grad"] = [grad.name]
        block.ops.remove(op)
        block.ops.append(op)
    with pytest.raises(OpError, match="it combines gradients of several parameters that live on different servers"):
        transpile().get_pserver_program(FIRST)
