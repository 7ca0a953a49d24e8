"""An async job of a script that leaves the configuration as it is, at a learning rate that needs fresh gradients."""

from pathlib import Path

import pytest

from cluster.jobs import Jobs, free_endpoints

SCRIPT = Path(__file__).parent / "untouched_config.py"


@pytest.fixture
def jobs(tmp_path):
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.end()


def test_it_trains_reads_its_parameters_and_all_processes_end(jobs):
    endpoints = ",".join(free_endpoints(2))
    servers = [jobs.start(f"server{i}", SCRIPT, "server", i, endpoints) for i in range(2)]
    trainers = [jobs.start(f"trainer{i}", SCRIPT, "trainer", i, endpoints) for i in range(2)]
    jobs.finish([*servers, *trainers])
    assert all("trained 150 steps" in trainer.output for trainer in trainers)
