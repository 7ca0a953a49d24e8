"""Waiting is never silent: a trainer reports whom it waits for and since when, and that it has resumed."""

from __future__ import annotations

import pytest

from refluid.log import Log
from refluid.runtime.trainer.waiting import WaitLog


class Lines(Log):
    """Keeps the lines."""

    def __init__(self):
        self.lines = []

    def warning(self, message, **fields):
        self.lines.append((message, fields))


@pytest.fixture
def waits():
    return WaitLog("trainer 0", Lines(), lambda: 7)


def test_a_pending_reply_names_those_awaited_and_the_end_of_the_wait_is_reported(waits):
    wait = waits.begin("a:1")
    wait.since -= 37
    waits.pending(wait, ["trainer 1 (last seen 12 s ago)", "trainer 2 (has not joined in 37 s)"])
    waits.end(wait, replied=True)
    (message, fields), (resumed, _) = waits._log.lines
    assert message == "waiting for other trainers"
    assert fields["awaited"] == "trainer 1 (last seen 12 s ago), trainer 2 (has not joined in 37 s)"
    assert (fields["server"], fields["step"], round(fields["seconds"])) == ("a:1", 7, 37)
    assert resumed == "resumed after 37 s"


def test_a_server_that_does_not_reply_is_named_every_few_seconds(waits):
    wait = waits.begin("a:1")
    for seconds in range(21):
        waits.remind(wait.since + seconds)
    assert {message for message, _ in waits._log.lines} == {"waiting for a server that does not reply"}
    assert [fields["seconds"] for _, fields in waits._log.lines] == [9, 15]


def test_a_short_wait_is_not_reported(waits):
    wait = waits.begin("a:1")
    waits.remind(wait.since + 1)
    waits.end(wait, replied=True)
    assert waits._log.lines == []


def test_a_trainer_whose_peer_was_killed_says_so_and_that_it_resumed(jobs):
    servers, trainer = jobs.roles(
        {"steps": 10**6}, FLAGS_worker_update_interval_secs="15", FLAGS_rpc_lost_trainer="leave_out"
    )
    stays, lost = trainer(0), trainer(1)
    for server in servers:
        server.wait_for("trainer=1")
    lost.kill()
    stays.wait_for('awaited="trainer 1 on ')
    assert "waiting for other trainers" in stays.output
    stays.wait_for("resumed after")  # the servers have left it out


def test_a_trainer_that_waits_for_initial_parameters_names_the_first_trainer(jobs):
    servers, trainer = jobs.roles({"steps": 3})
    early = trainer(1)
    early.wait_for('awaited="trainer 0 (has not joined')
    jobs.finish([trainer(0), early, *servers])
    assert "resumed after" in early.output
