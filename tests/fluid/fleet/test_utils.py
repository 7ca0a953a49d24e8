import os
import stat

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.contrib import distributed_batch_reader, multi_download, multi_upload
from paddle.fluid.contrib.utils import hdfs_utils
from paddle.fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.incubate.fleet.utils import hdfs, utils
from paddle.fluid.incubate.fleet.utils.fleet_barrier_util import check_all_trainers_ready
from paddle.fluid.incubate.fleet.utils.fleet_util import FleetUtil

# Hadoop in a folder: enough of `hadoop fs` for the client to work with.
HADOOP = """#!/bin/sh
shift
while case "$1" in -D*) true;; *) false;; esac; do shift; done
list() { for path in "$@"; do [ -e "$path" ] || continue; kind=-; [ -d "$path" ] && kind=d
  echo "${kind}rw-r--r--   1 me us   7 2024-05-01 12:00 $path"; done; }
case "$1" in
  -test) test $2 "$3" ;;
  -ls) [ -e "$2" ] || { echo "ls: no such file: $2" >&2; exit 1; }; echo "Found items"; list "$2"/* ;;
  -lsr) find "$2" -mindepth 1 | while read -r path; do list "$path"; done ;;
  -mkdir) mkdir -p "$3" ;;
  -rm) rm -r "$3" ;;
  -mv) mv "$2" "$3" ;;
  -put) cp -r "$2" "$3" ;;
  -get) cp -r "$2" "$3" ;;
  -cat) cat "$2" ;;
esac
"""


@pytest.fixture
def hadoop_home(tmp_path):
    program = tmp_path / "hadoop/bin/hadoop"
    program.parent.mkdir(parents=True)
    program.write_text(HADOOP)
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    return str(tmp_path / "hadoop")


CONFIGS = {"fs.default.name": "hdfs://nowhere:1", "hadoop.job.ugi": "me,secret"}


def fill(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"in {name}\n")
    return str(folder)


def test_files_go_to_hadoop_and_back(hadoop_home, tmp_path):
    client = hdfs.HDFSClient(hadoop_home, CONFIGS)
    local, remote, back = fill(tmp_path / "local", "a", "sub/b"), str(tmp_path / "remote"), tmp_path / "back"
    assert not client.is_exist(remote)
    assert client.upload(remote, local)
    assert (client.is_dir(remote), client.is_file(f"{remote}/a"), client.cat(f"{remote}/a")) == (True, True, "in a")
    assert client.ls(remote) == [f"{remote}/a", f"{remote}/sub"]
    assert client.lsr(remote) == [f"{remote}/a", f"{remote}/sub/b"]
    assert client.lsr(remote, excludes=["sub"]) == [f"{remote}/a"]
    assert client.download(remote, str(back))
    assert (back / "sub/b").read_text() == "in sub/b\n"
    assert not client.download(f"{remote}/a", str(back / "a"))  # it is there already
    assert client.download(f"{remote}/a", str(back / "a"), overwrite=True)
    assert client.rename(f"{remote}/a", f"{remote}/c") and client.is_exist(f"{remote}/c")
    assert client.makedirs(f"{remote}/x/y") and client.upload_dir(f"{remote}/x", local)
    assert client.is_file(f"{remote}/x/local/sub/b")
    assert client.delete(remote) and client.delete(remote)
    assert client.ls(remote) == []


def test_a_missing_hadoop_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no program .*bin/hadoop; is hadoop_home right"):
        hdfs.HDFSClient(str(tmp_path), {}).is_exist("/x")
    with pytest.raises(FileNotFoundError, match="there is no nowhere to upload"):
        hdfs_utils.HDFSClient(str(tmp_path), {}).upload("/x", "nowhere")


def test_trainers_download_their_shares(hadoop_home, tmp_path):
    client = hdfs_utils.HDFSClient(hadoop_home, CONFIGS)
    remote = str(tmp_path / "remote")
    multi_upload(client, remote, fill(tmp_path / "local", "a", "b", "sub/c"))
    assert client.lsr(remote, only_file=False) == [f"{remote}/{name}" for name in ("a", "b", "sub", "sub/c")]
    shares = [multi_download(client, remote, str(tmp_path / f"t{i}"), i, 2) for i in (0, 1)]
    assert shares == [[f"{tmp_path}/t0/a", f"{tmp_path}/t0/b"], [f"{tmp_path}/t1/sub/c"]]
    assert all(os.path.isfile(file) for share in shares for file in share)
    with pytest.raises(OSError, match="not all files of .* could be downloaded"):
        multi_download(client, remote, str(tmp_path / "t0"), 0, 2)  # they are there already


@pytest.mark.parametrize(("trainers", "trainer", "batches"), [(1, 0, [*range(7)]), (2, 1, [1, 3, 5]), (3, 2, [2, 5])])
def test_every_trainer_reads_as_many_batches(monkeypatch, trainers, trainer, batches):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(trainers))
    monkeypatch.setenv("PADDLE_TRAINER_ID", str(trainer))
    assert list(distributed_batch_reader(lambda: iter(range(7)))()) == batches


def test_a_trainer_beyond_the_last_has_no_batches(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    with pytest.raises(ValueError, match="PADDLE_TRAINER_ID is 2, but PADDLE_TRAINERS_NUM says 2"):
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
    with pytest.raises(NotImplementedError, match="FleetUtil.save_xbox_base_model works on tables of pslib"):
        FleetUtil().save_xbox_base_model("out", "20190720")
    with pytest.raises(ValueError, match="mode is 'pslib' or 'transpiler', not 'x'"):
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
