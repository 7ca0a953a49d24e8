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
    """Losses and parameters that each process has printed, for each of the models."""
    logs = [(folder / f"mylog/workerlog.{rank}").read_text() for rank in range(2)]
    return zip(*(json.loads(re.findall(r"^result (.*)$", log, re.M)[0]) for log in logs), strict=True)


def train(model, steps, *, devices=None, load_from=None):
    """Losses and parameters of training on whole batches in this process, perhaps from saved parameters on."""
    startup, main = fluid.Program(), fluid.Program()
    startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = collective_job.MODELS[model]()
    exe, program = fluid.Executor(fluid.CPUPlace()), main
    if devices is not None:
        program = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=fluid.cpu_places(devices))
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        if load_from is not None:
            fluid.io.load_persistables(exe, str(load_from), main)
        feeds = (collective_job.feed(model, step) for step in steps)
        losses = [exe.run(program, feed=feed, fetch_list=[loss.name])[0].mean() for feed in feeds]
        return losses, collective_job.parameters(main)


def check(found, expected):
    """Losses and parameters of both processes are those of one device, and their parameters the same."""
    first, second = found
    np.testing.assert_allclose(np.mean([first[0], second[0]], axis=0), expected[0], atol=1e-5)
    assert first[1] == second[1]
    for name, value in expected[1].items():
        np.testing.assert_allclose(first[1][name], value, atol=1e-5, err_msg=name)


def test_two_processes_of_two_devices_train_as_one_device_does_every_time(tmp_path):
    """And what they save loads onto any number of devices."""
    models = ["sgd", "momentum", "sequences", "sparse", "adam", "adam"]
    done = launch(tmp_path, "nccl2", ",".join(models), "50", "saved", devices=2)
    assert done.returncode == 0, done.stdout + done.stderr
    found = list(results(tmp_path))
    assert found[-1] == found[-2]  # bit for bit
    alone = {model: train(model, range(50)) for model in models}
    for model, each in zip(models, found, strict=True):
        check(each, alone[model])
    saved = tmp_path / "saved/adam"
    assert {*alone["adam"][1], "learning_rate_0"} < {path.name for path in saved.iterdir()}
    one, two, four = (train("adam", range(50, 60), devices=n, load_from=saved)[0] for n in (None, 2, 4))
    np.testing.assert_allclose(two, one, atol=1e-5)
    np.testing.assert_allclose(four, one, atol=1e-5)
    np.testing.assert_allclose(one, train("adam", range(60))[0][50:], atol=1e-5)


def test_two_processes_that_communicate_by_operators_train_as_one_device_does(tmp_path):
    done = launch(tmp_path, "collective", "momentum", "50", devices=1)
    assert done.returncode == 0, done.stdout + done.stderr
    check(*results(tmp_path), train("momentum", range(50)))


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
