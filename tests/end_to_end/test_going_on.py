"""Training that stops, is saved, and goes on in another process gives bit by bit what it would have given."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.random_state import program_random_state, restore_program_random_state

SCRIPT = Path(__file__).parent / "training_to_go_on.py"


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_a_run_that_goes_on_is_the_run_that_did_not_stop(tmp_path, optimizer):
    run(optimizer, "none", 0, 20, tmp_path / "whole")
    run(optimizer, "none", 0, 10, tmp_path / "half")
    run(optimizer, tmp_path / "half", 10, 20, tmp_path / "went on")
    whole = contents(tmp_path / "whole")
    assert contents(tmp_path / "went on") == whole
    assert contents(tmp_path / "half") != whole
    assert "@LR_DECAY_COUNTER@" in whole


def test_random_numbers_go_on_when_asked(tmp_path):
    x = fluid.layers.data("x", [50])
    noisy = fluid.layers.dropout(x, 0.5)
    main, executor = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones((1, 50), "float32")}

    def draw(count):
        return [executor.run(main, feed=feed, fetch_list=[noisy])[0] for _ in range(count)]

    draw(3)
    state = program_random_state(fluid.global_scope(), main)
    expected = draw(3)
    with fluid.scope_guard(fluid.Scope()):
        restore_program_random_state(state, fluid.global_scope(), main)
        np.testing.assert_array_equal(draw(3), expected)
