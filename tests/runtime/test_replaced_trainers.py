"""Trainers that are killed and started again; real processes."""

import numpy as np
import pytest

from cluster.jobs import wait_until

CASE = {"steps": 16, "embedding": True, "optimizer": "Adam", "decay": True, "keep": False, "resume": True}
SILENT = {"FLAGS_worker_update_interval_secs": "3", "FLAGS_rpc_lost_trainer": "wait"}
KILLED = 7


def losses(jobs, name):
    return np.load(jobs.folder / f"{name}.npz")["0/losses"]


def kill_one(jobs, case):
    """Trainer 1 is killed before its eighth step and started again; the processes that ended the job."""
    start, trainer = jobs.lasting(case, **SILENT)
    servers, stays, killed = [start(0), start(1)], trainer(0), trainer(1, KILL_BEFORE_STEP=str(KILLED))
    wait_until(lambda: killed.popen.poll() is not None, lambda: killed.output)
    assert killed.popen.returncode == -9, killed.output
    again = trainer(1, "again")
    jobs.finish([stays, again, *servers])
    assert f"steps={KILLED}" in again.output
    return stays, servers


def test_sync_training_goes_on_after_a_trainer_was_killed_as_if_nothing_had_happened(jobs):
    (undisturbed,) = jobs.train_locally([CASE])
    stays, _ = kill_one(jobs, CASE)
    assert "trainer 1 is back as" in stays.output
    both = (losses(jobs, "trainer0")[KILLED:] + losses(jobs, "again")) / 2
    np.testing.assert_allclose(both, undisturbed["losses"][KILLED:], rtol=1e-5)


@pytest.mark.parametrize("mode", ["async", "half_async", "geo"])
def test_in_other_modes_a_replaced_trainer_takes_the_steps_that_are_left(jobs, mode):
    _, servers = kill_one(jobs, {**CASE, "decay": False, "mode": mode, "optimizer": "SGD", "push": 1})
    assert len(losses(jobs, "trainer0")) == 16 and len(losses(jobs, "again")) == 16 - KILLED
    for server in servers:
        assert "round=32" in server.output.splitlines()[-1], "every step of both counts once"
