"""Fleet without servers: programs, checkpoints, options."""

import os

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.distributed.fs_wrapper import BDFS, LocalFS
from paddle.fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker, UserDefinedCollectiveRoleMaker
from paddle.fluid.incubate.fleet.collective import (
    Collective,
    CollectiveOpBasedOptimizer,
    DistributedStrategy,
    TrainStatus,
)

ENDPOINTS = ["127.0.0.1:6170", "127.0.0.1:6171"]


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "1")


def make_fleet(workers=2, index=0):
    fleet = Collective()
    fleet.init(UserDefinedCollectiveRoleMaker(index, ENDPOINTS[:workers]))
    return fleet


def make_loss():
    fluid.default_startup_program().random_seed = 1
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 3, act="tanh")
    return hidden, fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))


def minimize(fleet, loss, **options):
    strategy = DistributedStrategy()
    for name, value in options.items():
        setattr(strategy, name, value)
    return fleet.distributed_optimizer(fluid.optimizer.Momentum(0.1, 0.9), strategy).minimize(loss)


def types(program):
    return [op.type for op in program.global_block().ops]


def train(fleet, loss, steps=3):
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fleet.startup_program)
    batch = {"x": np.ones((2, 4), np.float32), "y": np.ones((2, 1), np.float32)}
    losses = [executor.run(fleet.main_program, feed=batch, fetch_list=[loss.name])[0] for _ in range(steps)]
    return executor, np.concatenate(losses)


def test_the_program_is_compiled_for_all_workers():
    fleet, (_, loss) = make_fleet(index=1), make_loss()
    accepted = {"use_hierarchical_allreduce": True, "hierarchical_allreduce_inter_nranks": 2, "nccl_comm_num": 2}
    updates, pairs = minimize(fleet, loss, **accepted)
    assert [op.type for op in updates] == ["momentum"] * 4 and len(pairs) == 4
    compiled = fleet.main_program
    assert isinstance(compiled, fluid.CompiledProgram) and fleet.startup_program is fluid.default_startup_program()
    assert compiled._loss_name == loss.name and compiled.program is fluid.default_main_program()
    strategy = compiled._build_strategy
    assert (strategy.num_trainers, strategy.trainer_id, strategy.trainers_endpoints) == (2, 1, ENDPOINTS)
    assert types(fleet.startup_program)[-1] == "gen_nccl_id"
    assert compiled.program._trainers_endpoints == ENDPOINTS and compiled.program._trainer_id == 1


def test_a_place_from_the_environment(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", ",".join(ENDPOINTS))
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    fleet = Collective()
    fleet.init(PaddleCloudRoleMaker(is_collective=True))
    assert fleet.worker_index() == 1 and fleet.worker_num() == 2 and fleet.is_worker() and not fleet.is_first_worker()
    assert fleet.worker_endpoints(to_string=True) == ",".join(ENDPOINTS)


def test_one_worker_trains_like_a_local_program():
    fleet, (_, loss) = make_fleet(1), make_loss()
    minimize(fleet, loss)
    _, found = train(fleet, loss)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        _, alone = make_loss()
        fluid.optimizer.Momentum(0.1, 0.9).minimize(alone)
        fleet.main_program, fleet.startup_program = fluid.default_main_program(), fluid.default_startup_program()
        with fluid.scope_guard(fluid.Scope()):
            np.testing.assert_array_equal(train(fleet, alone)[1], found)
    assert found[-1] < found[0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"use_local_sgd": True}, "elementwise_sub"),
        ({"mode": "collective", "collective_mode": "local_sgd", "local_sgd_frequency": 4}, "conditional_block"),
        ({"mode": "collective", "collective_mode": "grad_allreduce"}, "c_allreduce_sum"),
        ({"_ut4grad_allreduce": True}, "c_allreduce_sum"),
    ],
)
def test_programs_that_communicate_themselves(options, expected):
    fleet, (_, loss) = make_fleet(), make_loss()
    minimize(fleet, loss, **options)
    assert fleet.main_program is fluid.default_main_program()
    assert expected in types(fleet.main_program)
    assert types(fleet.startup_program).count("c_broadcast") == 4


def test_one_worker_has_nobody_to_communicate_with():
    fleet, (_, loss) = make_fleet(1), make_loss()
    minimize(fleet, loss, use_local_sgd=True)
    assert "c_allreduce_sum" not in types(fleet.main_program)


def test_forward_values_are_recomputed():
    fleet, (hidden, loss) = make_fleet(1), make_loss()
    forward = types(fluid.default_main_program()).count("tanh")
    minimize(fleet, loss, forward_recompute=True, recompute_checkpoints=[hidden])
    assert types(fleet.main_program.program).count("mul") == 2 * forward + 1


def test_mixed_precision_begins_with_the_scale_of_the_strategy():
    fleet, (hidden, loss) = make_fleet(1), make_loss()
    minimize(fleet, loss, use_amp=True, amp_loss_scaling=64, forward_recompute=True, recompute_checkpoints=[hidden])
    assert {"cast", "check_finite_and_unscale", "update_loss_scaling"} <= set(types(fleet.main_program.program))
    _, losses = train(fleet, loss)
    assert losses[-1] < losses[0]
    assert np.array(fluid.global_scope().find_var("loss_scaling_0").get_tensor()) == [64.0]


def test_gradients_of_several_batches_are_merged():
    fleet, (_, loss) = make_fleet(1), make_loss()
    minimize(fleet, loss, gradient_merge_steps=2)
    _, losses = train(fleet, loss, steps=4)
    assert losses[0] == losses[1] != losses[2] == losses[3]


def test_checkpoints_are_numbered_and_continue_training(tmp_path):
    fleet, (_, loss) = make_fleet(1), make_loss()
    minimize(fleet, loss)
    executor, _ = train(fleet, loss)
    root = str(tmp_path / "checkpoints")
    assert fleet.load_check_point(executor, root, trainer_id=0) is None
    with pytest.raises(AssertionError, match="there is no checkpoint in"):
        fleet.load_check_point(executor, root, trainer_id=0, ignore_empty=False)
    for epoch in range(3):
        fleet.save_check_point(executor, root, TrainStatus(epoch))
    names = [f"__paddle_fleet_checkpoint__.{i}" for i in range(3)]
    assert LocalFS().list_dirs(root) == names
    assert sorted(os.listdir(os.path.join(root, names[2]))) == ["_paddle_fleet_param__", "fleet_train_status"]
    weights = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
    saved = np.array(weights)
    weights.set(np.zeros_like(saved), fluid.CPUPlace())
    status = fleet.load_check_point(executor, root, trainer_id=0)
    assert status == TrainStatus(2) and status != TrainStatus(1) and status.next() == 3
    np.testing.assert_array_equal(fluid.global_scope().find_var("fc_0.w_0").get_tensor(), saved)
    fleet.clean_redundant_check_points(root, checkpoint_num=2)
    assert LocalFS().list_dirs(root) == names[1:]
    fleet.save_checkpoint(executor, root, TrainStatus(7), remain_all_checkpoint=False)
    assert LocalFS().list_dirs(root) == ["__paddle_fleet_checkpoint__.3"]


def test_a_checkpoint_that_was_not_completed_is_not_loaded(tmp_path):
    fleet, (_, loss) = make_fleet(1), make_loss()
    minimize(fleet, loss)
    executor, _ = train(fleet, loss)
    (tmp_path / "__paddle_fleet_checkpoint__.5.tmp").mkdir()
    assert fleet.load_check_point(executor, str(tmp_path), trainer_id=0) is None


def test_only_the_first_worker_writes_checkpoints(tmp_path):
    fleet, (_, loss) = make_fleet(2, index=1), make_loss()
    minimize(fleet, loss)
    fleet.save_check_point(fluid.Executor(fluid.CPUPlace()), str(tmp_path / "here"), TrainStatus(0))
    assert not (tmp_path / "here").exists()


def test_checkpoints_on_another_file_system(tmp_path):
    fleet, (_, loss) = make_fleet(1), make_loss()
    minimize(fleet, loss)
    executor, _ = train(fleet, loss)
    remote, cache = BDFS(f"file://{tmp_path}", "me,secret"), str(tmp_path / "cache")
    fleet.save_check_point(executor, "/jobs/first", TrainStatus(4), fs=remote, local_cache_path=cache)
    assert (tmp_path / "jobs/first/__paddle_fleet_checkpoint__.0/fleet_train_status").exists()
    assert fleet.load_check_point(executor, "/jobs/first", 0, fs=remote, local_cache_path=cache) == TrainStatus(4)


def test_models_are_saved_from_the_program_that_was_minimized(tmp_path):
    fleet, (hidden, loss) = make_fleet(1), make_loss()
    minimize(fleet, loss)
    executor, _ = train(fleet, loss)
    fleet.save_persistables(executor, str(tmp_path / "all"))
    assert "fc_0.w_0_velocity_0" in os.listdir(tmp_path / "all")
    fleet.save_inference_model(executor, str(tmp_path / "model"), ["x"], [hidden])
    assert sorted(os.listdir(tmp_path / "model")) == ["__model__", "fc_0.b_0", "fc_0.w_0"]


def test_one_worker_does_not_wait_for_others():
    fleet, total = make_fleet(1), np.zeros(2)
    fleet.barrier_worker()
    fleet.all_reduce_worker(np.array([1.0, 2.0]), total)
    assert total.tolist() == [1.0, 2.0]


def test_calls_for_servers_do_nothing():
    fleet = make_fleet()
    for name in ("init_worker", "run_worker", "init_server", "run_server", "stop_worker"):
        assert getattr(fleet, name)() is None


def test_wrong_arguments_are_refused():
    fleet, (_, loss) = make_fleet(), make_loss()
    sgd = fluid.optimizer.SGD(0.1)
    with pytest.raises(TypeError, match=r"strategy must be a .*DistributedStrategy, not int"):
        fleet.distributed_optimizer(sgd, 3)
    with pytest.raises(ValueError, match="expects a fluid.optimizer.Optimizer, not int"):
        fleet.distributed_optimizer(3)
    with pytest.raises(TypeError, match="minimize expects a single loss, not a list"):
        fleet.distributed_optimizer(sgd).minimize([loss])
    with pytest.raises(RuntimeError, match="call fleet.init"):
        Collective().distributed_optimizer(sgd).minimize(loss)
    with pytest.raises(AttributeError, match="DistributedStrategy has no option use_local_sdg"):
        DistributedStrategy().use_local_sdg = True
    with pytest.raises(ValueError, match="requires strategy.recompute_checkpoints"):
        minimize(fleet, loss, forward_recompute=True)
    with pytest.raises(NotImplementedError, match="use_dist_fc is not supported"):
        minimize(fleet, loss, use_dist_fc=True)
    with pytest.raises(AssertionError, match=r"fleet.save_persistables: executor must be a fluid.Executor, not int"):
        fleet.save_persistables(3, "somewhere")
    with pytest.raises(AssertionError, match=r"save_persistables: main_program must be a Program, not CompiledProgram"):
        compiled = fluid.CompiledProgram(fluid.default_main_program())
        fleet.save_persistables(fluid.Executor(fluid.CPUPlace()), "somewhere", compiled)
    with pytest.raises(NotImplementedError, match="does not create programs; use CollectiveOptimizer"):
        CollectiveOpBasedOptimizer(sgd).minimize(loss)
