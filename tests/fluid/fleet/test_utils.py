import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.contrib import distributed_batch_reader
from paddle.fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.incubate.fleet.utils import hdfs, utils
from paddle.fluid.incubate.fleet.utils.fleet_barrier_util import check_all_trainers_ready
from paddle.fluid.incubate.fleet.utils.fleet_util import FleetUtil


def fill(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"in {name}\n")
    return str(folder)


@pytest.fixture
def client():
    """A client of a file system in memory, empty at first."""
    client = hdfs.HDFSClient(None, {"fs.default.name": "memory://fleet", "hadoop.job.ugi": "me,secret"})
    yield client
    client.delete("/all")


def test_files_go_elsewhere_and_back(client, tmp_path):
    local, back = fill(tmp_path / "local", "a", "sub/b"), tmp_path / "back"
    assert not client.is_exist("/all")
    assert client.upload("/all", local)
    assert (client.is_dir("/all"), client.is_file("/all/a"), client.cat("/all/a")) == (True, True, "in a")
    assert client.ls("/all") == ["/all/a", "/all/sub"]
    assert client.lsr("/all") == ["/all/a", "/all/sub/b"]
    assert client.lsr("/all", excludes=["sub"]) == ["/all/a"]
    assert client.download("/all", str(back))
    assert (back / "sub/b").read_text() == "in sub/b\n"
    with pytest.warns(UserWarning, match="exists, and overwrite is False"):
        assert not client.download("/all/a", str(back))
    assert client.download("/all/a", str(back), overwrite=True)
    assert client.rename("/all/a", "/all/c") and client.is_exist("/all/c")
    assert client.upload_dir("/all/x", local) and client.is_file("/all/x/local/sub/b")
    assert client.split_files(["a", "b", "c"], 1, 2) == ["c"]


@pytest.mark.parametrize(("trainers", "trainer", "batches"), [(1, 0, [*range(7)]), (2, 1, [1, 3, 5]), (3, 2, [2, 5])])
def test_every_trainer_reads_as_many_batches(monkeypatch, trainers, trainer, batches):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(trainers))
    monkeypatch.setenv("PADDLE_TRAINER_ID", str(trainer))
    assert list(distributed_batch_reader(lambda: iter(range(7)))()) == batches


def test_a_trainer_beyond_the_last_has_no_batches(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    with pytest.raises(ValueError, match="PADDLE_TRAINER_ID is 2, but PADDLE_TRAINERS_NUM is 2"):
        distributed_batch_reader(lambda: iter(()))


@pytest.fixture
def one_worker(monkeypatch):
    for name in ("_role_maker", "_executor", "_is_initialized"):
        monkeypatch.setattr(fleet, name, getattr(fleet, name))
    fleet.init(UserDefinedRoleMaker(0, Role.WORKER, 1, ["127.0.0.1:1"]))


def test_the_first_worker_speaks_for_all(one_worker, capsys, caplog):
    util = FleetUtil("transpiler")
    util.rank0_print("hello")
    util.rank0_error("lost")
    fleet.init(UserDefinedRoleMaker(1, Role.WORKER, 2, ["127.0.0.1:1"]))
    util.rank0_print("not me")
    util.rank0_error("nor me")
    assert capsys.readouterr().out == "hello\n"
    assert [record.message for record in caplog.records] == ["lost"]


def test_the_auc_of_counts(one_worker, capsys):
    util, scope = FleetUtil(), fluid.global_scope()
    scope.var("pos").get_tensor().set(np.array([0, 1, 5, 9], "int64"), fluid.CPUPlace())
    scope.var("neg").get_tensor().set(np.array([8, 3, 1, 0], "int64"), fluid.CPUPlace())
    # Of 15 * 12 pairs: ordered ones, and half of the ties.
    expected = (9 * 12 + 5 * (8 + 3 + 0.5) + 1 * (8 + 1.5)) / (15 * 12)
    assert util.get_global_auc(scope, "pos", "neg") == pytest.approx(expected)
    assert util.get_global_auc(scope, "nope", "neg") is None
    util.set_zero("pos")
    assert np.array(scope.find_var("pos").get_tensor()).tolist() == [0, 0, 0, 0]
    util.print_global_auc(scope, "pos", "neg", "epoch 1")
    assert "epoch 1 global auc = 0.5\n" in capsys.readouterr().out


def test_what_pslib_did_is_said():
    with pytest.raises(NotImplementedError, match="FleetUtil.save_xbox_base_model requires tables of pslib"):
        FleetUtil().save_xbox_base_model("out", "20190720")
    with pytest.raises(ValueError, match="mode must be 'pslib' or 'transpiler', not 'x'"):
        FleetUtil("x")


def test_trainers_meet_at_files(one_worker, tmp_path):
    check_all_trainers_ready(str(tmp_path), 3)
    assert [path.name for path in tmp_path.iterdir()] == ["ready.3.0.done"]


def test_programs_as_text_lists_and_drawings(tmp_path):
    fluid.layers.fc(fluid.layers.data("x", [3]), 2)
    program = fluid.default_main_program()
    utils.save_program(program, str(tmp_path / "main"))
    text = utils.program_type_trans(str(tmp_path), "main", is_text=False)
    assert text == "main.pbtxt" and 'name: "fc_0.w_0"' in (tmp_path / text).read_text()
    assert utils.program_type_trans(str(tmp_path), text, is_text=True) == "main.pbtxt.bin"
    again = utils.load_program(str(tmp_path / "main.pbtxt.bin"))
    assert [op.type for op in again.global_block().ops] == ["mul", "elementwise_add"]
    utils.parse_program(again, str(tmp_path))
    assert (tmp_path / "ops.log").read_text().splitlines()[0].startswith("mul  inputs ['x', 'fc_0.w_0']")
    assert len((tmp_path / "vars_persistable.log").read_text().splitlines()) == 2
    utils.graphviz(program.global_block(), str(tmp_path), "graph")
    assert "fc_0.w_0" in (tmp_path / "graph.dot").read_text()


def test_a_pruned_program_must_fit_its_training_program(caplog):
    fluid.layers.fc(fluid.layers.data("x", [3]), 2)
    program = fluid.default_main_program()
    assert utils.check_pruned_program_vars(program, program)
    assert not utils.check_pruned_program_vars(fluid.Program(), program)
    assert "variable fc_0.w_0 of the pruned program is not in the training program" in caplog.text
