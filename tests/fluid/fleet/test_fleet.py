"""Fleet without a network: roles, programs, errors. What it does with one is in tests/end_to_end."""

import pytest

import paddle.fluid as fluid
from paddle.fluid.communicator import Communicator
from paddle.fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
    DistributedTranspiler,
    StrategyFactory,
    TranspilerOptimizer,
)
from refluid import flags

SERVERS = ["127.0.0.1:6001", "127.0.0.1:6002"]


def make_fleet(role=Role.WORKER, current_id=1):
    fleet = DistributedTranspiler()
    fleet.init(UserDefinedRoleMaker(current_id, role, 2, SERVERS))
    return fleet


def make_loss():
    x, y = fluid.layers.data("x", [13]), fluid.layers.data("y", [1])
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))


def op_types(program):
    return [op.type for op in program.global_block().ops]


def asked_for(mode):
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode = mode == "sync"
    config.half_async = mode == "half_async"
    config.geo_sgd_mode = mode == "geo"
    return config


def test_a_fleet_says_who_is_who():
    fleet = make_fleet()
    assert (fleet.is_worker(), fleet.is_server(), fleet.is_first_worker()) == (True, False, False)
    assert (fleet.worker_index(), fleet.worker_num(), fleet.server_num()) == (1, 2, 2)
    assert fleet.server_endpoints() == SERVERS
    assert fleet.server_endpoints(to_string=True) == ",".join(SERVERS)
    assert fleet.worker_endpoints() == [] and fleet.worker_endpoints(to_string=True) == ""


@pytest.mark.parametrize(("count", "shares"), [(0, [0, 0]), (1, [1, 0]), (2, [1, 1]), (5, [3, 2])])
def test_files_are_shared_out_evenly_and_none_is_lost(count, shares):
    files = [f"part-{number}" for number in range(count)]
    parts = [make_fleet(current_id=worker).split_files(files) for worker in (0, 1)]
    assert [len(part) for part in parts] == shares
    assert parts[0] + parts[1] == files


def test_files_are_a_list():
    with pytest.raises(TypeError, match="files must be a list of names, not str"):
        make_fleet().split_files("part-0")


@pytest.mark.parametrize("mode", ["sync", "async", "half_async", "geo"])
@pytest.mark.parametrize("kind", ["config", "strategy"])
def test_a_worker_gets_a_trainers_programs(mode, kind):
    strategy = asked_for(mode) if kind == "config" else getattr(StrategyFactory, f"create_{mode}_strategy")()
    fleet, loss = make_fleet(), make_loss()
    optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy)
    assert isinstance(optimizer, TranspilerOptimizer)
    updates, params_grads = optimizer.minimize(loss)
    assert [p.name for p, _ in params_grads] == ["fc_0.w_0", "fc_0.b_0"] and updates
    assert fleet.main_program is fluid.default_main_program()
    assert fleet.startup_program is fluid.default_startup_program()
    types = op_types(fleet.main_program)
    assert "send" in types and "recv" in types
    assert ("sgd" in types) is (mode == "geo")
    assert ("send_barrier" in types) is (mode in ("sync", "half_async"))
    assert "send" not in op_types(fleet._origin_program)


def test_a_server_gets_a_servers_programs():
    fleet, loss = make_fleet(Role.SERVER), make_loss()
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
    assert op_types(fleet.main_program) == ["listen_and_serv"]
    assert fleet.main_program.global_block().ops[0].attr("endpoint") == SERVERS[1]
    assert op_types(fleet.startup_program)


def test_programs_of_ones_own():
    fleet, main, startup = make_fleet(), fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        loss = make_loss()
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss, startup_program=startup)
    assert fleet.main_program is main and fleet.startup_program is startup
    assert "recv" in op_types(startup)


def test_the_steps_of_minimize_can_be_taken_alone():
    loss = make_loss()
    optimizer = make_fleet().distributed_optimizer(fluid.optimizer.SGD(0.1))
    assert optimizer.apply_gradients(optimizer.backward(loss))


def test_before_init_nothing_works():
    fleet, loss = DistributedTranspiler(), make_loss()
    with pytest.raises(RuntimeError, match=r"call fleet.init\(role_maker\) before using fleet"):
        fleet.is_worker()
    with pytest.raises(RuntimeError, match="call fleet.init"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
    assert "sgd" not in op_types(fluid.default_main_program())  # nothing half done


@pytest.mark.parametrize("name", ["init_worker", "stop_worker"])
def test_workers_need_a_program(name):
    with pytest.raises(ValueError, match=rf"fleet.{name}: no program yet; call fleet.distributed_optimizer"):
        getattr(make_fleet(), name)()


@pytest.mark.parametrize(
    ("name", "role", "wanted"),
    [
        ("init_worker", Role.SERVER, "worker"),
        ("stop_worker", Role.SERVER, "worker"),
        ("init_server", Role.WORKER, "server"),
        ("run_server", Role.WORKER, "server"),
    ],
)
def test_a_call_that_is_for_the_others_is_refused(name, role, wanted):
    with pytest.raises(RuntimeError, match=rf"fleet.{name} must be called on a {wanted}, which this process is not"):
        getattr(make_fleet(role), name)()


def test_wrong_arguments_are_refused():
    fleet, loss = make_fleet(), make_loss()
    with pytest.raises(TypeError, match="role_maker must be an instance of RoleMakerBase, not int"):
        fleet.init(3)
    with pytest.raises(ValueError, match="expects a fluid.optimizer.Optimizer, not int"):
        fleet.distributed_optimizer(3)
    with pytest.raises(TypeError, match="strategy must be a DistributeTranspilerConfig, or a SyncStrategy"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), 3)
    with pytest.raises(TypeError, match="minimize expects a single loss, not a list"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize([loss])
    with pytest.raises(TypeError, match="executor must be a fluid.Executor, not int"):
        fleet.save_persistables(3, "somewhere")
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    with pytest.raises(TypeError, match="main_program must be a Program, not a CompiledProgram"):
        fleet.save_persistables(fluid.Executor(fluid.CPUPlace()), "somewhere", compiled)


def test_what_is_not_there_says_so():
    with pytest.raises(ImportError, match="was never published; import fleet from"):
        import paddle.fluid.incubate.fleet.parameter_server.pslib  # noqa: F401


def test_a_communicator_runs_between_start_and_stop(monkeypatch):
    monkeypatch.setattr(flags, "_set", {})
    communicator = Communicator(fluid.default_main_program(), 1, None, {"communicator_max_merge_var_num": "3"})
    assert not communicator.is_running()
    communicator.start()
    assert communicator.is_running()
    assert flags.read_flag("FLAGS_communicator_max_merge_var_num") == 3
    communicator.recv()
    communicator.stop()
    assert not communicator.is_running()
    with pytest.raises(TypeError, match="Communicator takes the trainer's Program, not str"):
        Communicator("main")
    with pytest.raises(ValueError, match="unknown flag FLAGS_nope"):
        Communicator(fluid.default_main_program(), envs={"nope": 1}).start()


def test_tables_are_shrunk_by_workers_that_train():
    with pytest.raises(RuntimeError, match="must be called on a worker"):
        make_fleet(Role.SERVER).shrink_sparse_table()
    with pytest.raises(RuntimeError, match="no trainer of a job"):
        make_fleet().shrink_sparse_table()
