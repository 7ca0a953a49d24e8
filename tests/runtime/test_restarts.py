"""Servers that are killed and started again; real processes."""

import numpy as np
import pytest

CASE = {"steps": 25, "embedding": True, "optimizer": "Adam", "decay": True, "keep": False}


def losses(jobs, case=0, trainers=2):
    return np.stack([np.load(jobs.folder / f"trainer{number}.npz")[f"{case}/losses"] for number in range(trainers)])


def undisturbed(jobs, case):
    return np.stack([found["losses"] for found in jobs.train([case])[0]])


@pytest.mark.parametrize("point", ["log:9", "logged:12"])
def test_with_a_log_sync_training_goes_on_as_if_nothing_had_happened(jobs, point):
    expected = undisturbed(jobs, CASE)
    kept = {"FLAGS_rpc_server_snapshots": str(jobs.folder / "kept"), "FLAGS_rpc_server_log": str(jobs.folder / "log")}
    start, trainer = jobs.lasting(CASE, **kept)
    servers = [start(0), start(1, REFLUID_KILL_AT=point)]
    trainers = [trainer(0), trainer(1)]
    servers[1].popen.wait(600)
    assert servers[1].popen.returncode == -9, servers[1].output
    again = start(1, name="again")
    jobs.finish([*trainers, servers[0], again])

    assert "restored a snapshot" in again.output
    assert "lost_updates=0" in trainers[0].output
    np.testing.assert_allclose(losses(jobs), expected, rtol=1e-5)
    assert not list((jobs.folder / "kept").rglob("manifest.json")), "a job that is over needs no snapshots"
