"""The configuration has Fluid's fields, and says which mode is meant."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid
from paddle.fluid.transpiler.distribute_transpiler import DistributedMode, ServerRuntimeConfig
from programs_to_distribute import config, regression, transpile
from refluid.ir.modes import Mode
from refluid.transpiler.config import choose_mode

# As real Fluid 1.8.5 has them.
FIELDS = {
    "collective_mode": None,
    "completely_not_async": False,
    "enable_dc_asgd": False,
    "geo_sgd_mode": False,
    "geo_sgd_need_push_nums": 100,
    "half_async": False,
    "hierarchical_allreduce_inter_nranks": 0,
    "min_block_size": 8192,
    "mode": "pserver",
    "nccl_comm_num": 1,
    "print_log": False,
    "runtime_split_send_recv": False,
    "slice_var_up": True,
    "split_method": None,
    "sync_mode": True,
    "use_hierarchical_allreduce": False,
    "wait_port": True,
}


def test_every_field_of_fluid_is_there_with_its_default():
    made = fluid.DistributeTranspilerConfig()
    assert {name: getattr(made, name) for name in dir(made) if not name.startswith("_")} == FIELDS


@pytest.mark.parametrize(
    ("fields", "sync_mode", "mode"),
    [
        ({}, True, Mode.SYNC),
        ({}, False, Mode.ASYNC),
        ({"sync_mode": False}, True, Mode.ASYNC),
        ({"sync_mode": False, "half_async": True}, True, Mode.HALF_ASYNC),
        ({"sync_mode": False, "geo_sgd_mode": True}, False, Mode.GEO),
    ],
)
def test_who_asks_for_less_than_sync_gets_it(fields, sync_mode, mode):
    assert choose_mode(config(**fields), sync_mode) is mode


def test_modes_have_the_numbers_of_fluid():
    assert {mode.name: int(mode) for mode in DistributedMode} == {"SYNC": 0, "ASYNC": 1, "HALF_ASYNC": 2, "GEO": 3}


def test_whole_variables_are_sent_in_async_mode_only():
    with pytest.raises(ValueError, match="set config.sync_mode = False first"):
        config(runtime_split_send_recv=True)
    whole = config(sync_mode=False, runtime_split_send_recv=True)
    with pytest.raises(ValueError, match="set config.runtime_split_send_recv = False first"):
        whole.sync_mode = True


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"mode": "nccl3"}, ValueError, "config.mode must be one of pserver, nccl2, collective, not 'nccl3'"),
        ({"mode": "collective"}, ValueError, "collective_mode must be one of grad_allreduce, local_sgd, not None"),
        ({"min_block_size": 0}, ValueError, "min_block_size must be at least 1"),
        ({"geo_sgd_mode": True, "geo_sgd_need_push_nums": 0}, ValueError, "geo_sgd_need_push_nums must be at least 1"),
    ],
)
def test_what_cannot_work_is_said_early(fields, error, words):
    with pytest.raises(error, match=words):
        fluid.DistributeTranspiler(config(**fields))


def test_nccl2_mode_takes_endpoints_and_has_no_servers():
    regression()
    transpiler = fluid.DistributeTranspiler(config(mode="nccl2"))
    with pytest.raises(TypeError, match="trainers is 2; with config.mode='nccl2' it must list the endpoints"):
        transpiler.transpile(0, trainers=2)
    transpiler.transpile(1, trainers="127.0.0.1:6170,127.0.0.1:6171", current_endpoint="127.0.0.1:6171")
    assert transpiler.get_trainer_program() is fluid.default_main_program()
    assert fluid.default_main_program()._trainer_id == 1
    with pytest.raises(RuntimeError, match="config.mode='nccl2' trains without servers"):
        transpiler.get_pserver_program("127.0.0.1:6170")


def test_dc_asgd_is_for_async_training():
    regression()
    with pytest.raises(ValueError, match="enable_dc_asgd requires async training; the mode is sync"):
        transpile(config(enable_dc_asgd=True))


def test_threads_of_servers_can_be_given():
    transpiler, given = fluid.DistributeTranspiler(), ServerRuntimeConfig()
    transpiler._set_server_config(given)
    assert transpiler.server_config is given
