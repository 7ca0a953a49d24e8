"""Whole jobs without servers: launched processes that train as one, and save from the first one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster import collective_job
from refluid.runtime.launch.environment import Placement
from refluid.runtime.launch.ports import HeldPorts

SCRIPT = Path(collective_job.__file__)


def launch(folder, *arguments, devices):
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", str(SCRIPT), *arguments]
    environment = {**os.environ, "CPU_NUM": str(devices), "XLA_FLAGS": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def results(folder):
    """Losses and parameters that each process has printed."""
    logs = [(folder / f"mylog/workerlog.{rank}").read_text() for rank in range(2)]
    return [json.loads(re.findall(r"^result (.*)$", log, re.M)[0]) for log in logs]


def alone(optimizer, steps):
    """Losses and parameters of training on whole batches with one device."""
    startup, main = fluid.Program(), fluid.Program()
    startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = collective_job.build(optimizer)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        batches = (dict(zip(("x", "y"), collective_job.batch(step), strict=True)) for step in range(steps))
        losses = [exe.run(main, feed=feed, fetch_list=[loss.name])[0].item() for feed in batches]
        return losses, {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}


@pytest.mark.parametrize(("mode", "optimizer", "devices"), [("nccl2", "adam", 2), ("collective", "momentum", 1)])
def test_two_processes_train_as_one_device_does(tmp_path, mode, optimizer, devices):
    done = launch(tmp_path, mode, optimizer, "50", "saved", devices=devices)
    assert done.returncode == 0, done.stdout + done.stderr
    losses, parameters = alone(optimizer, 50)
    first, second = results(tmp_path)
    np.testing.assert_allclose(np.mean([first[0], second[0]], axis=0), losses, atol=1e-5)
    assert first[1] == second[1]
    for name, value in parameters.items():
        np.testing.assert_allclose(first[1][name], value, atol=1e-5, err_msg=name)
    assert {*parameters, "learning_rate_0"} < {path.name for path in (tmp_path / "saved").iterdir()}


@pytest.mark.parametrize(("mode", "killed"), [("nccl2", 1), ("collective", 0)])
def test_a_killed_process_is_named_where_the_other_runs_its_step(mode, killed):
    ports = HeldPorts()
    job = Placement((), ports.hold_any(2))
    variables = {**os.environ, "XLA_FLAGS": "", "CPU_NUM": "1", "KILL": f"{killed}:3"}
    command, pipe = (
        [sys.executable, str(SCRIPT), mode, "sgd", "20"],
        {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
    )
    members = job.members()
    started = [subprocess.Popen(command, env=variables | job.environment(m), text=True, **pipe) for m in members]
    try:
        outputs = [process.communicate(timeout=60)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
        ports.close()
    assert (started[killed].returncode, started[1 - killed].returncode) == (-9, 1)
    named = f"RankError: rank {killed} at {members[killed].endpoint} has ended without leaving"
    assert named in outputs[1 - killed] and "exe.run(compiled" in outputs[1 - killed]
