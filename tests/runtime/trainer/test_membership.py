"""A trainer's membership: what servers say when it joins, and what heartbeats go through."""

import threading
from contextlib import suppress

import pytest

from cluster.jobs import wait_until
from refluid.errors import SecurityError, ServerError
from refluid.ir.modes import Mode
from refluid.log import Log
from refluid.runtime.trainer.exchange_plan import Job
from refluid.runtime.trainer.membership import Membership
from refluid.runtime.trainer.waiting import WaitLog
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import pb

ENDPOINTS = "one:1", "two:2"


class Connection:
    """A server that replies to everything."""

    def __init__(self, **reply):
        self.reply = {"incarnation": 1, "heartbeat_seconds": 0.01, **reply}
        self.heartbeats = 0
        self.before = lambda: None  # a heartbeat

    def call(self, method, buffers, timeout):
        if method == "Heartbeat":
            self.heartbeats += 1
            self.before()
            return b"".join(wire.encode(pb.HeartbeatReply()))
        return b"".join(wire.encode(pb.JoinReply(**self.reply) if method == "Join" else pb.Empty()))


@pytest.fixture
def member():
    """Makes a member of a job whose servers reply so."""
    made = []

    def make(*replies, mode=Mode.HALF_ASYNC):
        endpoints, log = ENDPOINTS[: len(replies)], Log("trainer")
        connections = {name: Connection(**reply) for name, reply in zip(endpoints, replies, strict=True)}
        waits = WaitLog("trainer 0", log, lambda: 0)
        error = lambda endpoint, problem: ServerError(0, 0, endpoint, problem)  # noqa: E731
        found = Membership(Job(0, 1, endpoints, mode), connections, log, error, waits, lambda: 0)
        made.append(found)
        found.join_all()
        return found, connections

    yield make
    for found in made:
        found.leave()


def test_heartbeats_outlive_whatever_goes_wrong_with_one(member, caplog):
    connection = member({})[1]["one:1"]

    def replaced():
        connection.before = lambda: None
        raise SecurityError("FLAGS_rpc_token_file: cannot read token: No such file")

    connection.before = replaced
    wait_until(lambda: "could not send a heartbeat" in caplog.text)
    before = connection.heartbeats
    wait_until(lambda: connection.heartbeats > before)
    assert "cannot read token" in caplog.text


def test_threads_that_join_a_restarted_server_together_count_what_is_lost_once(member, monkeypatch, caplog):
    found, connections = member({"sequence": 2})
    found.count_push("one:1", 1)
    found.replied("one:1", pushed=True)
    connections["one:1"].reply |= {"incarnation": 2, "sequence": 1, "restored": True}
    together = threading.Barrier(2)

    class Known(dict):
        def get(self, endpoint):
            value = super().get(endpoint)
            with suppress(threading.BrokenBarrierError):
                together.wait(0.1)
            return value

    monkeypatch.setattr(found, "_incarnations", Known(found._incarnations))
    threads = [threading.Thread(target=found.join, args=["one:1"]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.lost == 2 and caplog.text.count("a server was restarted") == 1


def test_a_push_stands_for_no_more_steps_than_some_servers_have_and_others_lack(member):
    found, _ = member({"steps": 6, "sequence": 3}, {"steps": 4, "sequence": 2})
    assert found.applied == 4 and found.to_catch_up == 2
    for steps, numbers, left in [(0, [3, 3], 2), (2, [3, 4], 0), (4, [4, 5], 0)]:
        for endpoint in ENDPOINTS:
            found.count_push(endpoint, steps)
        assert [found.sequence[endpoint] for endpoint in ENDPOINTS] == numbers
        assert found.to_catch_up == left
