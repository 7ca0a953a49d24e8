"""Server programs: a block for the learning rates, one for what clipping must know, one for every slice."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid
from paddle.fluid.transpiler.ps_dispatcher import PSDispatcher
from programs_to_distribute import (
    FIRST,
    SECOND,
    SERVERS,
    assert_survives_protobuf,
    config,
    lines,
    regression,
    tagger,
    transpile,
)
from refluid.errors import OpError
from refluid.ir.slices import slices_of

L2 = fluid.regularizer.L2Decay


class OnlyFirst(PSDispatcher):
    def dispatch(self, varlist):
        return [self.eps[0]] * len(varlist)


def described(program):
    return [str(piece) for piece in slices_of(program)]


def listen(program):
    (op,) = program.global_block().ops
    assert op.type == "listen_and_serv"
    return op


def test_a_server_averages_regularises_and_updates_every_slice_it_holds():
    """The ops of the original program, on slices, after a sum and a scale over the trainers."""
    rate = fluid.layers.exponential_decay(0.1, 100, 0.9)
    regression(fluid.optimizer.Momentum(rate, 0.9, regularization=L2(0.01)), size=2)
    program = transpile().get_pserver_program(FIRST)
    assert [lines(block) for block in program.blocks[1:]] == [
        [
            "@LR_DECAY_COUNTER@ = increment(@LR_DECAY_COUNTER@)",
            "cast_0.tmp_0 = cast(@LR_DECAY_COUNTER@)",
            "tmp_0 = scale(cast_0.tmp_0)",
            "tmp_1 = fill_constant()",
            "tmp_2 = elementwise_pow(tmp_1, tmp_0)",
            "tmp_3 = scale(tmp_2)",
        ],
        [
            "fc_0.b_0@GRAD = sum(fc_0.b_0@GRAD.trainer_0, fc_0.b_0@GRAD.trainer_1)",
            "fc_0.b_0@GRAD = scale(fc_0.b_0@GRAD)",
            "_generated_var_0 = scale(fc_0.b_0)",
            "fc_0.b_0@GRAD = sum(fc_0.b_0@GRAD, _generated_var_0)",
            "fc_0.b_0 fc_0.b_0_velocity_0 = momentum(fc_0.b_0, fc_0.b_0@GRAD, tmp_3, fc_0.b_0_velocity_0)",
        ],
        [
            "fc_0.w_0@GRAD.block1 = sum(fc_0.w_0@GRAD.block1.trainer_0, fc_0.w_0@GRAD.block1.trainer_1)",
            "fc_0.w_0@GRAD.block1 = scale(fc_0.w_0@GRAD.block1)",
            "_generated_var_1 = scale(fc_0.w_0.block1)",
            "fc_0.w_0@GRAD.block1 = sum(fc_0.w_0@GRAD.block1, _generated_var_1)",
            "fc_0.w_0.block1 fc_0.w_0_velocity_0 = "
            "momentum(fc_0.w_0.block1, fc_0.w_0@GRAD.block1, tmp_3, fc_0.w_0_velocity_0)",
        ],
    ]
    assert program.global_block().var("fc_0.w_0_velocity_0").shape == (4, 2)
    assert_survives_protobuf(program)


def test_listen_and_serv_tells_what_the_server_holds():
    regression(fluid.optimizer.Adam(fluid.layers.exponential_decay(0.1, 100, 0.9)), size=2)
    program = transpile().get_pserver_program(SECOND)
    op = listen(program)
    assert op.input("X") == ["fc_0.w_0@GRAD.block0.trainer_0", "fc_0.w_0@GRAD.block0.trainer_1"]
    wanted = {
        "endpoint": SECOND,
        "endpoints": [FIRST, SECOND],
        "pserver_id": 1,
        "Fanin": 2,
        "distributed_mode": 0,
        "lr_decay_block_id": 1,
        "grad_to_block_id": ["fc_0.w_0@GRAD.block0:2"],
        "sparse_grad_to_param": [],
        "dc_asgd": False,
    }
    assert {name: op.attrs[name] for name in wanted} == wanted
    assert op.attr("optimize_blocks") == program.blocks[1:]
    assert sorted(described(program)) == [
        "@LR_DECAY_COUNTER@|@LR_DECAY_COUNTER@|0|1|1",
        "fc_0.w_0.block0|fc_0.w_0|0|4|8,2",
        "fc_0.w_0_beta1_pow_acc_0|fc_0.w_0_beta1_pow_acc_0|0|1|1",
        "fc_0.w_0_beta2_pow_acc_0|fc_0.w_0_beta2_pow_acc_0|0|1|1",
        "fc_0.w_0_moment1_0|fc_0.w_0_moment1_0|0|4|8,2",
        "fc_0.w_0_moment2_0|fc_0.w_0_moment2_0|0|4|8,2",
    ]
    assert {piece.name for piece in slices_of(program)} == {v.name for v in program.list_vars() if v.persistable}


def test_the_slices_of_all_servers_are_the_whole():
    tagger(rows=11)
    transpiler = transpile(pservers=f"{SERVERS},127.0.0.1:6176")
    held = [piece for e in transpiler.placement.endpoints for piece in slices_of(transpiler.get_pserver_program(e))]
    ranges = [(piece.start, piece.end) for piece in held if piece.whole == "emb"]
    assert sorted(ranges) == [(0, 3), (3, 7), (7, 11)]


def test_two_slices_on_one_server_have_states_of_their_own():
    regression(fluid.optimizer.Adam(0.1), size=2)
    program = transpile(config(split_method=OnlyFirst)).get_pserver_program(FIRST)
    assert [piece for piece in described(program) if "moment1" in piece or "beta1" in piece] == [
        "fc_0.b_0_moment1_0|fc_0.b_0_moment1_0|0|2|2",
        "fc_0.b_0_beta1_pow_acc_0|fc_0.b_0_beta1_pow_acc_0|0|1|1",
        "fc_0.w_0_moment1_0.block0|fc_0.w_0_moment1_0|0|4|8,2",
        "fc_0.w_0_beta1_pow_acc_0.block0|fc_0.w_0_beta1_pow_acc_0|0|1|1",
        "fc_0.w_0_moment1_0.block1|fc_0.w_0_moment1_0|4|8|8,2",
        "fc_0.w_0_beta1_pow_acc_0.block1|fc_0.w_0_beta1_pow_acc_0|0|1|1",
    ]


def test_a_server_without_slices_has_a_program_too():
    regression()
    transpiler = transpile(config(split_method=OnlyFirst))
    op = listen(transpiler.get_pserver_program(SECOND))
    assert (op.input("X"), op.attr("optimize_blocks"), op.attr("slices")) == ([], [], [])
    assert_survives_protobuf(transpiler.get_pserver_program(SECOND))
    assert transpiler.get_startup_program(SECOND).global_block().ops == []


@pytest.mark.parametrize("optimizer", [fluid.optimizer.LarsMomentum, fluid.optimizer.LambOptimizer])
def test_optimizers_that_measure_whole_parameters_get_them_whole(optimizer):
    made = optimizer(0.1, 0.9) if optimizer is fluid.optimizer.LarsMomentum else optimizer(0.1)
    regression(made, size=2)
    assert {len(placed.slices) for placed in transpile().placement.params} == {1}


def test_async_servers_update_by_what_arrives():
    regression(
        clip=fluid.clip.GradientClipByGlobalNorm(1.0), optimizer=fluid.optimizer.SGD(0.1, regularization=L2(0.1))
    )
    program = transpile(sync_mode=False).get_pserver_program(FIRST)
    assert [lines(block) for block in program.blocks[1:]] == [
        [
            "_generated_var_0 = scale(fc_0.b_0)",
            "fc_0.b_0@GRAD = sum(fc_0.b_0@GRAD, _generated_var_0)",
            "fc_0.b_0 = sgd(fc_0.b_0, fc_0.b_0@GRAD, learning_rate_0)",
        ]
    ]
    assert listen(program).input("X") == ["fc_0.b_0@GRAD"]
    assert listen(program).attr("distributed_mode") == 1


def test_dc_asgd_corrects_gradients_by_what_a_trainer_has_not_seen():
    regression()
    transpiler = transpile(config(enable_dc_asgd=True), sync_mode=False)
    program, startup = transpiler.get_pserver_programs(FIRST)
    assert lines(program.block(1)) == [
        "fc_0.b_0.local_bak = ref_by_trainer_id(fc_0.b_0.trainer_0_bak, fc_0.b_0.trainer_1_bak, @TRAINER_ID@)",
        "fc_0.b_0.dc_moved = elementwise_sub(fc_0.b_0, fc_0.b_0.local_bak)",
        "fc_0.b_0.dc_part = elementwise_mul(fc_0.b_0.dc_moved, fc_0.b_0@GRAD)",
        "fc_0.b_0.dc_step = elementwise_mul(fc_0.b_0.dc_part, fc_0.b_0@GRAD)",
        "fc_0.b_0@GRAD = elementwise_add(fc_0.b_0@GRAD, fc_0.b_0.dc_step)",
        "fc_0.b_0 = sgd(fc_0.b_0, fc_0.b_0@GRAD, learning_rate_0)",
    ]
    assert listen(program).attr("dc_asgd") is True
    assert lines(startup.global_block(), last=2) == [
        "fc_0.b_0.trainer_0_bak = assign(fc_0.b_0)",
        "fc_0.b_0.trainer_1_bak = assign(fc_0.b_0)",
    ]


def test_dc_asgd_is_for_dense_gradients():
    tagger()
    transpiler = transpile(config(enable_dc_asgd=True), sync_mode=False)
    with pytest.raises(OpError, match="enable_dc_asgd requires dense gradients; the gradient of emb is sparse"):
        transpiler.get_pserver_program(FIRST)


def test_a_schedule_with_branches_keeps_them():
    block = fluid.default_main_program().global_block()
    with fluid.default_main_program()._lr_schedule_guard():
        rate = fluid.layers.create_global_var([1], 0.1, "float32", persistable=True, name="rate")
        step = fluid.layers.autoincreased_step_counter("@LR_DECAY_COUNTER@", 0, 1)
        with fluid.layers.Switch() as switch:
            with switch.case(fluid.layers.less_than(step, fluid.layers.fill_constant([1], "int64", 5))):
                fluid.layers.assign(fluid.layers.fill_constant([1], "float32", 0.5), rate)
            with switch.default():
                fluid.layers.assign(fluid.layers.fill_constant([1], "float32", 0.05), rate)
    regression(fluid.optimizer.SGD(rate))
    branches = sum(op.type == "conditional_block" for op in block.ops)
    program = transpile().get_pserver_program(FIRST)
    schedule = program.block(listen(program).attr("lr_decay_block_id"))
    conditions = [op for op in schedule.ops if op.type == "conditional_block"]
    assert len(conditions) == branches == 2
    for op in conditions:
        assert op.attr("sub_block").program is program and op.attr("sub_block").parent_idx == schedule.idx
        assert op.attr("sub_block").ops[-1].output("Out") == ["rate"]
    assert op.attr("sub_block") not in listen(program).attr("optimize_blocks")
    assert_survives_protobuf(program)


def test_the_learning_rate_may_be_computed_without_a_guard_but_not_from_data():
    steps = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="steps")
    fluid.layers.increment(steps)
    regression(fluid.optimizer.SGD(fluid.layers.scale(steps, -0.01, bias=1.0)))
    assert lines(transpile().get_pserver_program(FIRST).block(1)) == [
        "steps = increment(steps)",
        "scale_0.tmp_0 = scale(steps)",
    ]


def test_a_learning_rate_from_data_is_an_error():
    rate = fluid.layers.data("rate", [1], append_batch_size=False)
    regression(fluid.optimizer.SGD(fluid.layers.scale(rate, 0.1)))
    with pytest.raises(OpError, match="updates of parameters need scale_0.tmp_0, which only trainers can compute"):
        transpile()
