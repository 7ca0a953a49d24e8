"""Trainers that join late or are lost; real processes."""

import json
import re

import numpy as np


def test_a_trainer_that_comes_late_is_waited_for_and_named(jobs):
    servers, trainer = jobs.roles({"steps": 3})
    early = trainer(0)
    for server in servers:
        server.wait_for('awaited="trainer 1 (has not joined')
    late = trainer(1)
    jobs.finish([early, late, *servers])

    for server in servers:
        after = server.output.split("trainer joined")[-1]
        assert "has not joined" not in after, "it is not reported as missing once it is there"
    for number in range(2):
        assert len(np.load(jobs.folder / f"trainer{number}.npz")["0/losses"]) == 3


def test_a_trainer_that_was_killed_is_evicted_after_a_while(jobs):
    servers, trainer = jobs.roles(
        {"steps": 2000, "fewer": -1}, FLAGS_worker_update_interval_secs="4", FLAGS_rpc_lost_trainer="leave_out"
    )
    stays, lost = trainer(0), trainer(1)
    for server in servers:
        server.wait_for("trainer=1")
    lost.kill()
    servers[0].wait_for("and is left out")
    jobs.finish([stays, *servers])

    assert len(np.load(jobs.folder / "trainer0.npz")["0/losses"]) == 2000


def test_a_trainer_whose_server_was_killed_names_it_and_ends(jobs):
    servers, trainer = jobs.roles({"steps": 10**6, "trainers": 1}, FLAGS_rpc_deadline="3000")
    for server in servers:
        server.wait_for("Server listening")  # however long that takes, the trainer has 3 s
    orphan = trainer(0)
    for server in servers:
        server.wait_for("trainer=0")
    servers[1].kill()
    orphan.finish(code=1)

    endpoint = json.loads((jobs.folder / "case.json").read_text())[0]["endpoints"][1]
    assert re.search(rf"ServerError: trainer 0, step \d+, server {endpoint}: ", orphan.output), orphan.output
    servers[0].finish(code=1)  # the trainer left it, and said why
    assert "has failed: ServerError: trainer 0" in servers[0].output
