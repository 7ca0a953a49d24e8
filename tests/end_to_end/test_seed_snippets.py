"""The single-machine snippets of Fluid's own guides run as they stand.

The files in snippets/ are the guides' text, untouched (so they are not linted either). A snippet that goes on from an
earlier one is given the names that one left behind. The only changes, made here in the open: a GPU place becomes a CPU
place on a machine without GPU, and what the two-program snippet leaves out with ``...`` is filled in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid

SNIPPETS = Path(__file__).parent / "snippets"


def run_snippet(name: str, *changes: tuple[str, str], **names):
    source = (SNIPPETS / f"{name}.py").read_text()
    for old, new in changes:
        assert source.count(old) == 1
        source = source.replace(old, new)
    if not fluid.is_compiled_with_cuda():
        source = source.replace("use_cuda = True", "use_cuda = False")
    scope = {"fluid": fluid, "compiler": fluid.compiler, **names}
    exec(compile(source, str(SNIPPETS / f"{name}.py"), "exec"), scope)
    return scope


def test_configuring_a_network():
    scope = run_snippet("configure_network")
    scope["sgd_optimizer"].minimize(scope["avg_cost"])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(program=fluid.default_startup_program())
    feed = {"x": np.ones((4, 13), "float32"), "y": np.ones((4, 1), "float32")}
    first, second = (exe.run(feed=feed, fetch_list=[scope["avg_cost"]])[0].item() for _ in range(2))
    assert second < first


def test_the_default_programs_are_built():
    run_snippet("two_default_programs")
    assert len(fluid.default_main_program().global_block().all_parameters()) == 4
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(program=fluid.default_startup_program())
    assert np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()).shape == (784, 100)


def test_single_card_training_plain_and_compiled_and_then_on_several(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "1")
    scope = run_snippet("single_card")
    assert scope["loss_data"].shape == (1,)
    before = scope["loss_data"].item()
    run_snippet("multi_card", **(scope := {**scope, "os": os}))
    after = run_snippet("multi_card", **scope)["loss_data"]
    assert after.shape == (2,) and after.mean() < before


def test_a_test_program_by_clone():
    scope = run_snippet("evaluate_by_clone")
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    batch = {"image": np.random.rand(8, 784).astype("float32"), "label": np.zeros((8, 1), "int64")}
    before = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
    (accuracy,) = exe.run(program=scope["test_program"], feed=batch, fetch_list=[scope["acc"]])
    assert 0.0 <= accuracy.item() <= 1.0
    np.testing.assert_array_equal(before, np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()))


def test_a_test_program_by_a_parallel_executor(monkeypatch):
    """The snippet goes on from that of the test program, and leaves out the feed with ``...``."""
    monkeypatch.setenv("CPU_NUM", "2")
    scope = run_snippet("evaluate_by_clone")
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    batch = {"image": np.random.rand(8, 784).astype("float32"), "label": np.zeros((8, 1), "int64")}
    places = (("use_cuda=True, loss", "use_cuda=False, loss"), ("use_cuda=True, share", "use_cuda=False, share"))
    scope = run_snippet("evaluate_in_parallel", *places, (", ...)", ", feed=batch)"), **scope, batch=batch)
    (accuracies,) = scope["test_acc"]
    expected, _ = fluid.Executor(fluid.CPUPlace()).run(
        scope["test_program"], feed=batch, fetch_list=[scope["acc"], scope["loss"]]
    )
    assert accuracies.shape == (2,) and accuracies.mean() == pytest.approx(expected.item())


def write_digits(path, value):
    """Two batches of pictures that show nothing but ``value``."""

    def batches():
        for start in (0, 4):
            yield [(np.full(784, value, "float32"), [start + i]) for i in range(4)]

    with fluid.program_guard(fluid.Program()):
        picture, label = fluid.layers.data("img", [784]), fluid.layers.data("label", [1], dtype="int64")
        feeder = fluid.DataFeeder([picture, label], fluid.CPUPlace())
        fluid.recordio_writer.convert_reader_to_recordio_file(path, batches, feeder)


def test_a_test_program_beside_the_training_program_each_with_its_own_files(tmp_path, monkeypatch):
    """The snippet leaves out arguments and layers with ``...`` and misspells program_guard."""
    monkeypatch.chdir(tmp_path)
    write_digits("train.recordio", 0.5)
    write_digits("test.recordio", 0.25)
    layers = 'prediction = fluid.layers.fc(hidden, 10, act="softmax")'
    loss = "loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))"
    scope = run_snippet(
        "evaluate_from_files",
        (", ...)", ', shapes=[[-1, 784], [-1, 1]], lod_levels=[0, 0], dtypes=["float32", "int64"])'),
        ("    ...\n", f"    {layers}\n    {loss}\n    files.append((file_obj, img))\n"),
        ("program_gurad", "program_guard"),
        files=(files := []),
    )
    (train, seen_in_training), (_, seen_in_test) = files
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    shown, _ = exe.run(fetch_list=[seen_in_training, scope["train_loss"]])
    assert shown.shape == (4, 784) and shown.min() == 0.5
    running_mean = np.array(fluid.global_scope().find_var("batch_norm_0.w_1").get_tensor())
    for _ in range(2):
        shown, loss = exe.run(scope["test_program"], fetch_list=[seen_in_test, scope["test_loss"]])
        assert shown.min() == shown.max() == 0.25 and np.isfinite(loss).all()
    np.testing.assert_array_equal(
        running_mean, np.array(fluid.global_scope().find_var("batch_norm_0.w_1").get_tensor())
    )
    with pytest.raises(fluid.core.EOFException):
        exe.run(scope["test_program"], fetch_list=[scope["test_loss"]])
    exe.run(fetch_list=[scope["train_loss"]])  # the end of one file is not that of the other
    with pytest.raises(fluid.core.EOFException):
        exe.run(fetch_list=[scope["train_loss"]])
    train.reset()
    exe.run(fetch_list=[scope["train_loss"]])
    train.reset()


def loss_without_feeds():
    """A model that makes its own data, as the guides' snippets run programs without a feed."""
    x = fluid.layers.fill_constant([4, 3], "float32", 0.5)
    return fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 2)))


def build_without_feeds():
    rate = fluid.layers.exponential_decay(0.1, decay_steps=1, decay_rate=0.9)
    fluid.optimizer.Adam(rate).minimize(loss_without_feeds())


def persistables():
    names = [v.name for v in fluid.default_main_program().list_vars() if fluid.io.is_persistable(v)]
    return {name: np.array(fluid.global_scope().find_var(name).get_tensor()) for name in names}


@pytest.mark.parametrize("saving", ["save_persistables", "trainer_0_saves"])
def test_training_goes_on_where_it_was_saved(saving, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_without_feeds()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    for _ in range(3):
        exe.run()
    run_snippet(saving)
    exe.run()
    expected = persistables()
    with fluid.scope_guard(fluid.Scope()):
        run_snippet("go_on_training")
        found = persistables()
    assert found.keys() == expected.keys() and "@LR_DECAY_COUNTER@" in found
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_parameters_are_saved_and_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_without_feeds()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    run_snippet("save_params")
    assert sorted(os.listdir("my_paddle_model")) == ["fc_0.b_0", "fc_0.w_0"]
    expected = persistables()["fc_0.w_0"]
    exe.run()
    assert (persistables()["fc_0.w_0"] != expected).any()
    run_snippet("load_params")
    np.testing.assert_array_equal(persistables()["fc_0.w_0"], expected)


def test_a_trainer_with_checkpoints(tmp_path):
    """The snippet leaves out the first arguments with ``...``; here they are the functions a Trainer needs."""

    def make_trainer(_, **options):
        return fluid.Trainer(loss_without_feeds, lambda: fluid.optimizer.SGD(0.1), place=fluid.CPUPlace(), **options)

    made = []

    def make_config(**options):
        made.append(dict(options))
        return fluid.CheckpointConfig(**{**options, "checkpoint_dir": str(tmp_path)})  # a folder of this test's own

    scope = run_snippet("checkpoint_config", CheckpointConfig=make_config, Trainer=make_trainer)
    assert made == [{"checkpoint_dir": "/tmp/ckpt", "max_num_checkpoints": 2, "epoch_interval": 2, "step_interval": 10}]
    assert isinstance(scope["trainer"], fluid.Trainer) and scope["trainer"].checkpoint_cfg is scope["config"]


@pytest.mark.parametrize("name", ["fit_a_line_v2"])
def test_whole_scripts_exit_well(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(SNIPPETS / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "REFLUID_SYNTHETIC_DATA": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
