"""The distributed snippets of Fluid's own guides, with real servers and trainers on loopback addresses."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import run_nccl2_snippet, run_snippets
from cluster.jobs import Jobs, free_endpoints

SNIPPETS = run_snippets.SNIPPETS


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """What two servers and two trainers have printed."""
    folder = tmp_path_factory.mktemp("snippets")
    endpoints = folder / "endpoints.json"
    endpoints.write_text(json.dumps({play.__name__: free_endpoints(2) for play in run_snippets.PLAYS}))
    jobs = Jobs(folder)
    script = Path(run_snippets.__file__)
    try:
        roles = [(role, number) for role in ("server", "trainer") for number in (0, 1)]
        jobs.finish([jobs.start(f"{role}{number}", script, role, number, endpoints, folder) for role, number in roles])
    finally:
        jobs.end()
    return {process.log.stem: process.output for process in jobs.processes}


@pytest.mark.parametrize("name", [play.__name__ for play in run_snippets.PLAYS])
def test_a_snippet_runs_on_servers_and_trainers(logs, name):
    assert [log for log, text in logs.items() if f"played {name}\n" not in text] == []


def test_every_snippet_is_played():
    played = Path(run_snippets.__file__).read_text() + Path(__file__).read_text()
    stems = [path.stem for path in SNIPPETS.glob("*.py")]
    assert [stem for stem in stems if f'"{stem}"' not in played and f'"{stem}.py"' not in played] == []


def test_fleet_prints_what_the_guide_says(logs):
    costs = re.findall(r"Pass \d, cost = ([\d.]+), auc = [\d.]+, batch_auc = [\d.]+", logs["trainer0"])
    costs = [float(cost) for cost in costs]  # of ten passes with two batches
    assert len(costs) == 20 and sum(costs[-2:]) < sum(costs[:2])


def test_the_snippet_without_servers_trains_as_the_guide_launches_it(tmp_path):
    """Its command has placeholders; and it tells users to set NCCL_SOCKET_IFNAME, which CPUs understand too."""
    guide = "python -m paddle.distributed.launch train.py --gpus <NUM_GPUS_ON_HOSTS> <ENTRYPOINT_SCRIPT> --arg1 --arg2"
    script = Path(run_nccl2_snippet.__file__)
    assert run_nccl2_snippet.SNIPPET == SNIPPETS / "nccl2.py"
    command = guide.replace("<NUM_GPUS_ON_HOSTS>", "2").replace("<ENTRYPOINT_SCRIPT>", str(script)).split()
    done = subprocess.run(
        [sys.executable, *command[1:]],
        cwd=tmp_path,
        env={**os.environ, "PADDLE_NUM_TRAINERS": "1", "NCCL_SOCKET_IFNAME": "lo", "CPU_NUM": "1", "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [(tmp_path / f"mylog/workerlog.{rank}").read_text() for rank in range(2)]
    first, second = (re.findall(r"^losses (.*) of 2 devices with --arg1 --arg2$", log, re.M)[0].split() for log in logs)
    assert first == second and float(first[-1]) < float(first[0])


def test_the_quick_start_script_trains_under_a_launcher(tmp_path):
    launch = [sys.executable, "-m", "refluid.cli", "launch", "--servers", "2", "--trainers", "2"]
    done = subprocess.run(
        [*launch, str(SNIPPETS / "dist_train.py")],
        cwd=tmp_path,
        env={**os.environ, "REFLUID_SYNTHETIC_DATA": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for trainer in (0, 1):
        found = re.findall(rf"\[trainer {trainer}\] Epoch: (\d+), Batch: \d+, loss: ([\d.]+)", done.stdout)
        losses = [float(loss) for _, loss in found]
        assert int(found[-1][0]) == 29
        assert sum(losses[-10:]) < sum(losses[:10])
