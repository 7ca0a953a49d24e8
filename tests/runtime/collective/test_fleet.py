"""Two processes train with Fleet, in every mode, as the closed form of the mode says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from cluster import collective_fleet_job
from cluster.collective_fleet_job import RATE, STEPS, batch


def gradient(w, x, y):
    return 2 * x.T @ (x @ w - y) / len(x)


def closed_form(start, interval):
    """The parameters of both processes after each step; without an interval, gradients are averaged."""
    w, found = np.float32([start, start]), []
    for step in range(STEPS):
        gradients = np.stack([gradient(*own) for own in zip(w, *batch(step), strict=True)])
        w = w - RATE * (gradients if interval else gradients.mean(0))
        if interval and step % interval == interval - 1:
            w = np.stack([w.mean(0)] * 2)
        found.append(w)
    return np.stack(found, axis=1)


def test_processes_follow_the_closed_form_of_their_mode(tmp_path):
    script = Path(collective_fleet_job.__file__)
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", str(script), "checkpoints"]
    variables = {**os.environ, "CPU_NUM": "1", "XLA_FLAGS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [(tmp_path / f"mylog/workerlog.{rank}").read_text() for rank in range(2)]
    first, second = (json.loads(re.findall(r"^result (.*)$", log, re.M)[0]) for log in logs)
    for mode in collective_fleet_job.MODES:
        expected = closed_form(first[mode][0], 2 if mode == "local_sgd" else None)
        np.testing.assert_allclose([first[mode][1:], second[mode][1:]], expected, rtol=1e-5, atol=1e-6, err_msg=mode)
        assert [path.name for path in (tmp_path / "checkpoints" / mode).iterdir()] == ["__paddle_fleet_checkpoint__.0"]
