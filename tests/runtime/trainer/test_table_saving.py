"""Saving tables with a trainer that is killed at any moment."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize("way", ["whole", "delta"])
def test_a_kill_at_any_write_leaves_what_was_saved_before_or_all_that_is_new(tmp_path, way):
    script = Path(__file__).parent / "tables_to_kill.py"
    command = [sys.executable, str(script), str(tmp_path), way]
    done = subprocess.run(command, env={"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *states, files = done.stdout.splitlines()
    before, after = ("1", "2") if way == "whole" else ("1 none", "1 2")
    assert set(states) == {before, after} and states == sorted(states, key=[before, after].index)
    assert len(states) > 10 and states[-1] == after
    assert files == "files 4"  # the dense variable, the manifest, and a part of each server
