"""Startup programs: who initialises what, and how all begin with the same values."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from programs_to_distribute import FIRST, SECOND, assert_survives_protobuf, config, lines, regression, tagger, transpile
from refluid.ir import OpRole, Program
from refluid.ir.slices import slices_of


def startup():
    return fluid.default_startup_program().global_block()


def talking():
    return [op for op in startup().ops if op.role & (OpRole.RPC | OpRole.Dist)]


def test_the_first_trainer_offers_its_parameters_and_receives_what_counts():
    regression(size=2)
    transpile()
    assert [op.type for op in talking()] == [
        "send",
        "split_byref",
        "send",
        "recv",
        "recv",
        "fetch_barrier",
        "concat",
    ]
    assert all(op.attrs["initial"] for op in talking())
    assert [op.attrs["send_varnames"] for op in talking() if op.type == "send"] == [
        ["fc_0.b_0"],
        ["fc_0.w_0.block0", "fc_0.w_0.block1"],
    ]
    assert [op.attrs["offer"] for op in talking() if op.type == "send"] == [True, True]


def test_other_trainers_only_receive():
    regression(size=2)
    transpile(trainer_id=1)
    assert [op.type for op in talking()] == ["recv", "recv", "fetch_barrier", "concat"]


@pytest.mark.parametrize(("trainer", "initialised"), [(0, True), (1, False)])
def test_tables_on_servers_are_initialised_by_the_first_trainer_and_dropped(trainer, initialised):
    tagger()
    transpile(trainer_id=trainer)
    makers = [op.type for op in startup().ops if "emb" in op.output_arg_names]
    assert makers == [*(["uniform_random"] if initialised else []), "fake_init"]


def test_trainers_do_not_initialise_what_servers_keep():
    regression(fluid.optimizer.Adam(0.1))
    transpile()
    made = {name for op in startup().ops for name in op.output_arg_names}
    assert made == {"fc_0.w_0", "fc_0.b_0", "learning_rate_0"}


def test_geo_trainers_keep_everything():
    tagger()
    transpile(config(sync_mode=False, geo_sgd_mode=True))
    assert "fake_init" not in [op.type for op in startup().ops]
    assert ["emb"] in [op.output("Out") for op in talking() if op.type == "recv"]


def test_servers_initialise_their_slices_and_say_so():
    regression(fluid.optimizer.Momentum(0.1, 0.9), size=2)
    program, begin = transpile().get_pserver_programs(SECOND)
    assert lines(begin.global_block(), "shape") == [
        "learning_rate_0 = fill_constant(shape=[1])",
        "fc_0.w_0_velocity_0 = fill_constant(shape=[4, 2])",
        "fc_0.w_0.block0 = uniform_random(shape=[4, 2])",
    ]
    assert set(slices_of(begin)) == set(slices_of(program))
    assert set(slices_of(Program.parse_from_string(begin.desc.serialize_to_string()))) == set(slices_of(program))
    assert_survives_protobuf(begin)


def test_a_slice_of_given_values_is_cut_out_of_them():
    values = np.arange(16, dtype="float32").reshape(8, 2)
    x = fluid.layers.data("x", [8])
    given = fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(values))
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(x, 2, param_attr=given, bias_attr=False)))
    program, begin = transpile().get_pserver_programs(SECOND)
    fluid.Executor(fluid.CPUPlace()).run(begin)
    held = np.array(fluid.global_scope().find_var("fc_0.w_0.block1").get_tensor())
    np.testing.assert_array_equal(held, values[4:])
    assert fluid.global_scope().find_var("fc_0.w_0") is None
    assert set(slices_of(begin)) == set(slices_of(program))


def test_another_startup_program_may_be_given():
    regression()
    transpiler = transpile()
    other = Program()
    with fluid.program_guard(Program(), other), fluid.unique_name.guard():
        regression(fluid.optimizer.SGD(0.7))
    begin = transpiler.get_startup_program(FIRST, startup_program=other)
    (rate,) = [op for op in begin.global_block().ops if op.output("Out") == ["learning_rate_0"]]
    assert rate.attr("value") == 0.7


def test_a_startup_program_of_something_else_is_an_error():
    regression()
    with pytest.raises(ValueError, match=r"does not initialise fc_0.b_0, fc_0.w_0: pass .*startup_program="):
        transpile(startup_program=Program())
