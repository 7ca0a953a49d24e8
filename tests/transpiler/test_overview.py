"""What scripts and tools ask a transpiler: where slices live, whether a table is distributed."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid
from programs_to_distribute import FIRST, SECOND, regression, transpile


def test_the_overview_says_where_each_slice_lives():
    regression(size=2)
    transpiler = transpile()
    overview = transpiler.vars_overview
    assert [
        (v.origin.name, v.slice.name, v.slice.shape, v.is_slice, v.block_id, v.offset, v.vtype, v.endpoint)
        for v in overview.distributed_vars
    ] == [
        ("fc_0.b_0", "fc_0.b_0", (2,), False, 0, 0, "Param", FIRST),
        ("fc_0.w_0", "fc_0.w_0.block0", (4, 2), True, 0, 0, "Param", SECOND),
        ("fc_0.w_0", "fc_0.w_0.block1", (4, 2), True, 1, 8, "Param", FIRST),
    ]
    assert [v.slice.name for v in transpiler.get_distributed_vars_by_ep(FIRST)] == ["fc_0.b_0", "fc_0.w_0.block1"]
    assert overview.get_distributed_var_by_slice("fc_0.w_0.block1").offset == 8
    assert overview.get_distributed_var_by_origin_and_ep("fc_0.w_0", SECOND).block_id == 0
    assert overview.get_distributed_var_by_slice("nothing") is None
    grouped = overview.get_distributed_vars_by_vtypes(["Param"], groupby=True)
    assert {name: len(slices) for name, slices in grouped.items()} == {"fc_0.b_0": 1, "fc_0.w_0": 2}


def test_a_slice_is_printed_as_in_fluid():
    regression(size=2)
    assert transpile().vars_overview.overview().splitlines()[1] == (
        "var owned: Param, origin var: ( fc_0.w_0 : fluid.VarType.LOD_TENSOR.shape(8, 2).astype(VarType.FP32) ), "
        "slice var: ( fc_0.w_0.block0 : fluid.VarType.LOD_TENSOR.shape(4, 2).astype(VarType.FP32)"
        f".slice(True).block(0).offset(0) ), endpoint: {SECOND} "
    )


@pytest.mark.parametrize("sync_mode", [True, False])
def test_a_transpiler_says_what_it_was_told(sync_mode):
    regression(size=2)
    transpiler = transpile(sync_mode=sync_mode)
    assert transpiler.origin_program is fluid.default_main_program()
    assert (transpiler.trainer_num, transpiler.pserver_endpoints) == (2, [FIRST, SECOND])
    assert transpiler.sync_mode is sync_mode and transpiler.distributed_mode == (0 if sync_mode else 1)


@pytest.mark.parametrize("is_distributed", [False, True])
def test_a_transpiler_knows_its_distributed_table(is_distributed):
    assert not fluid.DistributeTranspiler().has_distributed_lookup_table
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [10, 2], is_sparse=True, is_distributed=is_distributed, param_attr="table")
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(rows))
    transpiler = transpile()
    assert transpiler.has_distributed_lookup_table is is_distributed
    assert transpiler.table_name == ("table" if is_distributed else None)


def test_a_gradient_is_sent_where_it_is_ready():
    regression(size=2)
    ops = transpile().get_trainer_program(wait_port=False).global_block().ops
    types = [op.type for op in ops]
    # As in real Fluid: the bias first, then the weight, whose gradient comes last.
    assert types[types.index("elementwise_add_grad") :] == (
        "elementwise_add_grad send mul_grad split_byref send send_barrier recv recv fetch_barrier concat".split()
    )


def test_gradients_still_leave_in_one_exchange():
    from refluid.lowering.plan import Where, make_plan

    regression(size=2)
    block = transpile().get_trainer_program(wait_port=False).global_block()
    plan = make_plan(block, [])
    assert [piece.where for piece in plan.pieces] == [Where.COMPILED, Where.EXCHANGE]


def test_a_schedule_with_branches_has_a_block_for_each():
    x, y = fluid.layers.data("x", [8]), fluid.layers.data("y", [1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    with fluid.default_main_program()._lr_schedule_guard():
        step = fluid.layers.learning_rate_scheduler._decay_step_counter()
        rate = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
        with fluid.layers.Switch() as switch:
            with switch.case(step < 3.0):
                fluid.layers.assign(fluid.layers.fill_constant([1], "float32", 0.1), rate)
            with switch.default():
                fluid.layers.assign(fluid.layers.fill_constant([1], "float32", 0.01), rate)
    fluid.optimizer.SGD(rate).minimize(loss)
    server = transpile().get_pserver_program(FIRST)
    schedule = server.blocks[server.global_block().ops[-1].attr("lr_decay_block_id")]
    branches = [op.attr("sub_block") for op in schedule.ops if op.type == "conditional_block"]
    assert [branch.parent_idx for branch in branches] == [schedule.idx] * 2
    assert [[op.type for op in branch.ops] for branch in branches] == [["fill_constant", "assign"]] * 2
