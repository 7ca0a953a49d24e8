import pytest

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    StrategyFactory,
    TrainerRuntimeConfig,
)
from paddle.fluid.incubate.fleet.parameter_server.mode import DistributedMode
from refluid.ir.modes import Mode
from refluid.transpiler.config import choose_mode

MAKERS = {
    "sync": StrategyFactory.create_sync_strategy,
    "async": StrategyFactory.create_async_strategy,
    "half_async": StrategyFactory.create_half_async_strategy,
    "geo": StrategyFactory.create_geo_strategy,
}
PER_THREAD = {"communicator_max_merge_var_num": "1", "communicator_send_queue_size": "1"}
WAITING = {"communicator_send_wait_times": "5", "communicator_thread_pool_size": "5"}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.delenv("CPU_NUM", raising=False)


@pytest.mark.parametrize("name", MAKERS)
def test_a_strategy_is_a_mode(name):
    strategy = MAKERS[name]()
    assert choose_mode(strategy.get_program_config(), sync_mode=False) == Mode[name.upper()]
    assert strategy.get_trainer_runtime_config().mode == getattr(DistributedMode, name.upper())
    assert strategy.get_build_strategy().async_mode is True
    assert strategy.get_execute_strategy().use_thread_barrier is (name in ("sync", "half_async"))
    assert strategy.get_execute_strategy().num_threads == 1


def test_geo_has_a_frequency():
    assert StrategyFactory.create_geo_strategy().get_program_config().geo_sgd_need_push_nums == 100
    assert StrategyFactory.create_geo_strategy(7).get_program_config().geo_sgd_need_push_nums == 7


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sync", PER_THREAD | WAITING),
        ("half_async", PER_THREAD | WAITING),
        ("geo", WAITING),
        (
            "async",
            PER_THREAD
            | WAITING
            | {
                "communicator_independent_recv_thread": "1",
                "communicator_min_send_grad_num_before_recv": "1",
                "communicator_is_sgd_optimizer": "1",
                "rpc_deadline": "180000",
                "rpc_retry_times": "3",
            },
        ),
    ],
)
def test_each_mode_has_its_flags(name, expected):
    assert MAKERS[name]().get_trainer_runtime_config().get_communicator_flags() == expected


def test_flags_come_from_the_environment_and_from_threads(monkeypatch, capsys):
    monkeypatch.setenv("CPU_NUM", "3")
    monkeypatch.setenv("FLAGS_communicator_max_merge_var_num", "9")
    flags = StrategyFactory.create_async_strategy().get_trainer_runtime_config().get_communicator_flags()
    assert (flags["communicator_max_merge_var_num"], flags["communicator_send_queue_size"]) == ("9", "3")
    # Who waits for all threads merges one gradient of each.
    flags = StrategyFactory.create_sync_strategy().get_trainer_runtime_config().get_communicator_flags()
    assert flags["communicator_max_merge_var_num"] == "3"
    assert "communicator_max_merge_var_num is CPU_NUM, 3, not 9" in capsys.readouterr().out


def test_settings_are_changed_one_by_one():
    strategy = StrategyFactory.create_async_strategy()
    strategy.set_program_config({"min_block_size": 4})
    strategy.set_trainer_runtime_config({"communicator_max_merge_var_num": 5})
    strategy.set_server_runtime_config({"_rpc_send_thread_num": 6})
    strategy.set_build_strategy({"memory_optimize": True})
    strategy.set_execute_strategy({"num_threads": 3})
    strategy.set_debug_opt({"dump_slot": 1})
    assert strategy.get_program_config().min_block_size == 4
    assert strategy.get_trainer_runtime_config().get_communicator_flags()["communicator_max_merge_var_num"] == "5"
    assert strategy.get_server_runtime_config()._rpc_send_thread_num == 6
    assert strategy.get_build_strategy().memory_optimize is True
    assert strategy.get_execute_strategy().num_threads == 3
    assert strategy.get_debug_opt()["dump_slot"] is True and strategy.get_debug_opt()["dump_file_num"] == 16


def test_settings_are_replaced_and_the_mode_stays():
    strategy = StrategyFactory.create_geo_strategy()
    config = fluid.DistributeTranspilerConfig()
    config.min_block_size = 77
    strategy.set_program_config(config)
    assert strategy.get_program_config() is config
    assert choose_mode(config) == Mode.GEO and config.runtime_split_send_recv
    trainer = TrainerRuntimeConfig()
    strategy.set_trainer_runtime_config(trainer)
    assert trainer.mode == DistributedMode.GEO
    assert "communicator_send_queue_size" in repr(trainer)


@pytest.mark.parametrize(
    "part", ["program_config", "trainer_runtime_config", "server_runtime_config", "build_strategy"]
)
def test_unknown_settings_are_refused(part):
    change = getattr(StrategyFactory.create_sync_strategy(), f"set_{part}")
    with pytest.raises(ValueError, match="has no nope"):
        change({"nope": 1})
    with pytest.raises(TypeError, match=f"{part} expects a dict or a "):
        change(3)
