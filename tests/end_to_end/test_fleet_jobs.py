"""Fleet with real servers and workers: the cases of tests/cluster/fleet_job.py, in one set of processes."""

import json
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster import fleet_job
from cluster.jobs import Jobs, free_endpoints

SCRIPT = Path(fleet_job.__file__)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """What the two workers have seen, and the folder they saved to."""
    folder = tmp_path_factory.mktemp("fleet")
    endpoints = folder / "endpoints.json"
    endpoints.write_text(json.dumps({name: free_endpoints(2) for name in fleet_job.CASES}))
    jobs = Jobs(folder)
    try:
        roles = [(role, number) for role in ("server", "worker") for number in (0, 1)]
        jobs.finish([jobs.start(f"{role}{number}", SCRIPT, role, number, endpoints, folder) for role, number in roles])
    finally:
        jobs.end()
    return [json.loads((folder / f"worker{number}.json").read_text()) for number in (0, 1)], folder


def test_workers_meet_and_see_what_servers_count(job):
    (first, second), _ = job
    assert first["save"]["met"] == [1.0]
    steps = fleet_job.STEPS
    assert first["save"]["status"] == second["save"]["status"] == [steps, 2 * steps, 2, 2]


def test_the_first_worker_saves_parameters_and_state_for_all(job):
    (first, _), folder = job
    saved = {path.name for path in (folder / "persistables").iterdir()}
    assert saved >= {"table", "fc_0.w_0", "fc_0.b_0", "table_velocity_0", "fc_0.w_0_velocity_0", "learning_rate_0"}
    exe = fluid.Executor(fluid.CPUPlace())
    program, feeds, fetches = fluid.io.load_inference_model(str(folder / "model"), exe)
    ids = np.array([[3], [7]], "int64")
    (predicted,) = exe.run(program, feed={feeds[0]: ids}, fetch_list=fetches)
    scope = fluid.global_scope()
    table, bias = (np.array(scope.find_var(name).get_tensor()) for name in ("table", "fc_0.b_0"))
    weight = np.reshape(first["save"]["weight"], (4, 1))
    np.testing.assert_allclose(predicted, table[[3, 7]] @ weight + bias, rtol=1e-5)


def test_servers_go_on_with_a_saved_model_and_idle_workers_are_not_waited_for(job):
    (first, _), _ = job
    np.testing.assert_array_equal(first["load"]["weight"], first["save"]["weight"])


def test_a_communicator_is_stopped_and_started_again(job):
    for worker in job[0]:
        assert worker["steer"]["running"] == [0, 1, 0, 1, 1]


@pytest.mark.parametrize("case", ["save", "geo", "half_async"])
def test_losses_fall(job, case):
    for worker in job[0]:
        losses = worker[case]["losses"]
        assert np.mean(losses[-2:]) < np.mean(losses[:2])


def test_samples_are_shuffled_across_workers(job):
    first, second = (worker["half_async"] for worker in job[0])
    samples = first["samples"] + second["samples"]
    assert sorted(samples) == [*range(1, 51), *range(1001, 1050)], "nothing is lost, nothing doubled"
    for worker in (first, second):
        assert worker["sizes"] == [99, 0, len(worker["samples"]), 99]
        assert {value // 1000 for value in worker["samples"]} == {0, 1}, "each has samples of both"
        assert worker["samples"] != sorted(worker["samples"])
        assert worker["lengths"] == [(value - 1) % 1000 % 3 + 1 for value in worker["samples"]], "samples stay whole"
