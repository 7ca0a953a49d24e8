"""The single-machine snippets of Fluid's own guides run as they stand.

The files in snippets/ are the guides' text, untouched (so they are not linted either). A snippet that goes on from an
earlier one is given the names that one left behind. The only changes, made here in the open: a GPU place becomes a CPU
place on a machine without GPU, and the two-program snippet, which elides its model with ``...``, is written out.
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


def run_snippet(name: str, **names):
    source = (SNIPPETS / f"{name}.py").read_text()
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


def test_single_card_training_plain_and_compiled():
    scope = run_snippet("single_card")
    assert scope["loss_data"].shape == (1,)


def test_a_test_program_by_clone():
    scope = run_snippet("evaluate_by_clone")
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    batch = {"image": np.random.rand(8, 784).astype("float32"), "label": np.zeros((8, 1), "int64")}
    before = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
    (accuracy,) = exe.run(program=scope["test_program"], feed=batch, fetch_list=[scope["acc"]])
    assert 0.0 <= accuracy.item() <= 1.0
    np.testing.assert_array_equal(before, np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()))


def test_a_test_program_beside_the_training_program():
    def network(is_test):
        img = fluid.layers.data("img", [784])
        label = fluid.layers.data("label", [1], dtype="int64")
        hidden = fluid.layers.fc(input=img, size=100, act="relu")
        hidden = fluid.layers.batch_norm(input=hidden, is_test=is_test)
        prediction = fluid.layers.fc(hidden, 10, act="softmax")
        return fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))

    with fluid.unique_name.guard():
        train_loss = network(is_test=False)
        sgd = fluid.optimizer.SGD(0.001)
        sgd.minimize(train_loss)

    test_program = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(test_program, fluid.Program()):
        test_loss = network(is_test=True)

    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    batch = {"img": np.random.rand(8, 784).astype("float32"), "label": np.ones((8, 1), "int64")}
    exe.run(feed=batch, fetch_list=[train_loss])
    running_mean = np.array(fluid.global_scope().find_var("batch_norm_0.w_1").get_tensor())
    (value,) = exe.run(test_program, feed=batch, fetch_list=[test_loss])
    assert np.isfinite(value).all()
    np.testing.assert_array_equal(
        running_mean, np.array(fluid.global_scope().find_var("batch_norm_0.w_1").get_tensor())
    )


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
