"""Every example runs as a user would start it, and learns what it should."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What the last figure named so must not exceed, or must reach; and arguments, where the example needs some.
EXPECTED = {
    "data_parallel.py": ("test accuracy", 0.95, "at least"),
    "distributed_ctr.py": ("test auc", 0.70, "at least", "--local"),
    "fit_a_line.py": ("test cost", 12.0, "at most"),
    "local_and_distributed.py": ("largest difference of a cost", 1e-5, "at most", "--steps", "60"),
    "mnist_mlp.py": ("test accuracy", 0.95, "at least"),
    "modern_sentiment.py": ("test accuracy", 0.9, "at least", "--launch", "--epochs", "1"),
    "recommender.py": ("test cost", 0.3, "at most"),
    "sentiment_lstm.py": ("test accuracy", 0.9, "at least"),
    "translation.py": ("translated as they should be", 0.8, "at least"),
}


def test_every_example_is_tested():
    assert sorted(EXPECTED) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_learns(name, tmp_path):
    figure, bound, direction, *arguments = EXPECTED[name]
    environment = {**os.environ, "REFLUID_SYNTHETIC_DATA": "1"}
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    last = float(re.findall(rf"{figure}\s+([0-9.e+-]+)", run.stdout)[-1])
    assert last <= bound if direction == "at most" else last >= bound, run.stdout
