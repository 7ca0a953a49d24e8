"""Exchange plans, read from the programs that the transpiler writes."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from programs_to_distribute import FIRST, SECOND, config, regression, tagger, transpile
from refluid.ir.modes import Mode
from refluid.lowering.plan import Where, make_plan
from refluid.runtime.trainer.exchange_plan import Job, job_of, read_plan


def exchanges(program):
    """The operators of a program's exchanges."""
    pieces = make_plan(program.global_block(), []).pieces
    return [list(piece.schedule.ops) for piece in pieces if piece.where is Where.EXCHANGE]


def described(variables):
    return {
        variable.name: [(part.endpoint, part.name, part.start, part.end) for part in variable.slices]
        for variable in variables
    }


@pytest.mark.parametrize("whole", [False, True], ids=["slices", "runtime split"])
def test_a_step_pushes_gradients_and_pulls_parameters(whole):
    regression(size=2)
    settings = config(sync_mode=False, runtime_split_send_recv=True) if whole else config()
    program = transpile(settings, sync_mode=not whole).get_trainer_program(wait_port=False)
    (ops,) = exchanges(program)
    plan = read_plan(ops)
    assert plan.job == job_of(ops) == Job(0, 2, (FIRST, SECOND), Mode.ASYNC if whole else Mode.SYNC)
    assert described(plan.pushes) == {
        "fc_0.b_0@GRAD": [(FIRST, "fc_0.b_0@GRAD", 0, 2)],
        "fc_0.w_0@GRAD": [(SECOND, "fc_0.w_0@GRAD.block0", 0, 4), (FIRST, "fc_0.w_0@GRAD.block1", 4, 8)],
    }
    assert described(plan.pulls) == {
        "fc_0.b_0": [(FIRST, "fc_0.b_0", 0, 2)],
        "fc_0.w_0": [(SECOND, "fc_0.w_0.block0", 0, 4), (FIRST, "fc_0.w_0.block1", 4, 8)],
    }
    assert {(v.dtype, v.shape, v.sparse) for v in plan.pushes} == {
        (np.dtype("float32"), (2,), False),
        (np.dtype("float32"), (8, 2), False),
    }
    assert not plan.initial and not plan.lookups and not plan.dropped


def test_a_table_on_servers_is_looked_up_pushed_as_rows_and_never_pulled():
    tagger(padding_idx=2)
    transpile()
    look_up, push = exchanges(fluid.default_main_program())
    (lookup,) = read_plan(look_up).lookups
    assert described([lookup.table]) == {"emb": [(FIRST, "emb.block0", 0, 5), (SECOND, "emb.block1", 5, 10)]}
    assert (lookup.ids, lookup.padding, lookup.keeps_last) == (("word",), 2, False)
    plan = read_plan(push)
    assert {variable.name: variable.sparse for variable in plan.pushes} == {"emb@GRAD": True, "fc_0.w_0@GRAD": False}
    assert [variable.name for variable in plan.pulls] == ["fc_0.w_0"]


def test_the_startup_offers_and_pulls_initial_values_and_drops_tables():
    tagger()
    transpile()
    (ops,) = exchanges(fluid.default_startup_program())
    plan = read_plan(ops)
    assert plan.initial
    assert [table.name for table in plan.dropped] == ["emb"]
    assert [variable.name for variable in plan.pushes] == ["emb", "fc_0.w_0"]
    assert not any(variable.sparse for variable in plan.pushes)
    assert [variable.name for variable in plan.pulls] == ["fc_0.w_0"]


def test_geo_pushes_parameters_with_the_ids_that_were_looked_up():
    tagger()
    transpile(config(sync_mode=False, geo_sgd_mode=True, geo_sgd_need_push_nums=5))
    (ops,) = exchanges(fluid.default_main_program())
    plan = read_plan(ops)
    assert (plan.job.mode, plan.geo_steps) == (Mode.GEO, 5)
    assert [(v.name, v.sparse, v.ids) for v in plan.pushes] == [("emb", True, ("word",)), ("fc_0.w_0", False, ())]


def test_an_operator_that_is_no_part_of_an_exchange_is_named():
    regression()
    transpile()
    (ops,) = exchanges(fluid.default_main_program())
    ops[-1].type = "send_and_recv"
    with pytest.raises(NotImplementedError, match="send_and_recv: refluid's runtime does not support it"):
        read_plan(ops)
