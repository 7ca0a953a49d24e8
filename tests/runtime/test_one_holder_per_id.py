"""Processes that join with the id of another trainer; real processes."""

import re

import numpy as np

from cluster.jobs import wait_until

STEPS = 12


def hold(jobs):
    """A case whose trainers stop before their sixth step until the file is there."""
    return {"steps": STEPS, "hold": str(jobs.folder / "go")}


def go(jobs):
    (jobs.folder / "go").touch()


def refused(process):
    """The hosts that the error of a refused trainer names: of the holder of the id, and its own."""
    process.finish(code=1)
    found = re.search(r"already running as (\S+) .*, and (\S+) tried to join", process.output)
    assert found, process.output
    return found.groups()


def test_a_second_trainer_with_one_id_is_refused_and_the_job_goes_on(jobs):
    servers, trainer = jobs.roles(hold(jobs))
    first = [trainer(0), trainer(1)]
    for server in servers:
        server.wait_for("trainer=1")
    second = trainer(1, "second")
    holder, newcomer = refused(second)
    go(jobs)
    jobs.finish([*first, *servers])

    assert holder.endswith(f":{first[1].popen.pid}") and newcomer.endswith(f":{second.popen.pid}")
    (local,) = jobs.train_locally([{"steps": STEPS}])
    losses = [np.load(jobs.folder / f"trainer{number}.npz")["0/losses"] for number in range(2)]
    np.testing.assert_allclose(np.mean(losses, axis=0), local["losses"], rtol=1e-4)


def test_of_two_trainers_with_one_id_that_start_together_one_is_refused(jobs):
    servers, trainer = jobs.roles(hold(jobs))
    one, other, third = trainer(0), trainer(0, "other"), trainer(1)
    wait_until(lambda: one.popen.poll() is not None or other.popen.poll() is not None, lambda: one.output)
    loser, winner = (one, other) if one.popen.poll() is not None else (other, one)
    holder, newcomer = refused(loser)
    go(jobs)
    jobs.finish([winner, third, *servers])

    assert holder.endswith(f":{winner.popen.pid}") and newcomer.endswith(f":{loser.popen.pid}")


def test_a_trainer_that_was_killed_and_started_again_takes_its_place(jobs):
    servers, trainer = jobs.roles(hold(jobs))
    stays, killed = trainer(0), trainer(1)
    for server in servers:
        server.wait_for("trainer=1")
    killed.kill()
    again = trainer(1, "again")
    for server in servers:
        server.wait_for(f":{killed.popen.pid} round=")  # replaces=...
    go(jobs)
    jobs.finish([stays, again, *servers])

    for name in ("trainer0", "again"):
        assert len(np.load(jobs.folder / f"{name}.npz")["0/losses"]) == STEPS
