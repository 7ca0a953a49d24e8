"""Every way of reading data, in every mode of a real job: the cases of tests/cluster/data_job.py."""

import json
from pathlib import Path

import numpy as np
import pytest

from cluster import data_job
from cluster.jobs import Jobs, free_endpoints


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """What the two workers have seen, by case."""
    folder = tmp_path_factory.mktemp("data")
    endpoints = folder / "endpoints.json"
    endpoints.write_text(json.dumps({case: free_endpoints(2) for case in data_job.CASES}))
    jobs = Jobs(folder)
    try:
        roles = [(role, number) for role in ("server", "worker") for number in (0, 1)]
        script = Path(data_job.__file__)
        jobs.finish([jobs.start(f"{role}{number}", script, role, number, endpoints, folder) for role, number in roles])
    finally:
        jobs.end()
    return [json.loads((folder / f"worker{number}.json").read_text()) for number in (0, 1)]


@pytest.mark.parametrize("case", data_job.CASES)
def test_losses_fall(workers, case):
    for worker in workers:
        assert worker[case]["after"] < 0.5 * worker[case]["before"]


@pytest.mark.parametrize("way", [way for way in data_job.WAYS if way != "feeder"])
def test_in_sync_mode_all_ways_train_alike(workers, way):
    for worker in workers:
        np.testing.assert_allclose(worker[f"sync/{way}"]["weight"], worker["sync/feeder"]["weight"], rtol=1e-6)
