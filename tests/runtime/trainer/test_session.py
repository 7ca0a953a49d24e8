"""A trainer's session with servers that reply late, fail, or do not reply; over real sockets."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import grpc
import numpy as np
import pytest

from cluster.jobs import wait_until
from refluid.errors import ServerError
from refluid.ir.modes import Mode
from refluid.runtime.launch.ports import HeldPorts
from refluid.runtime.trainer import membership, waiting
from refluid.runtime.trainer.exchange_plan import Job
from refluid.runtime.trainer.packing import Message
from refluid.runtime.trainer.session import Session
from refluid.runtime.transport import wire
from refluid.runtime.transport.listener import listen
from refluid.runtime.transport.request import Request
from refluid.runtime.transport.wire import pb


class Server:
    """Joins everybody, and leaves exchanges to ``exchange``."""

    def __init__(self, endpoint, exchange=lambda number, context: None):
        self.endpoint, self.heard, self.sizes, self._exchange = endpoint, [], [], exchange
        handlers = {"Join": self._join, "Exchange": self._answer, "Leave": self._leave, "Heartbeat": self._beat}
        handlers["Barrier"] = self._answer
        self.heartbeats = 0
        self._grpc = listen(endpoint, handlers, threads=12)
        self._grpc.start()

    def _join(self, message, context):
        return wire.encode(pb.JoinReply(incarnation=1))

    def _answer(self, message, context):
        self.heard.append("Exchange")
        self.sizes.append(len(message))
        reply = self._exchange(self.heard.count("Exchange"), context)
        return wire.encode(reply if isinstance(reply, pb.ExchangeReply) else pb.ExchangeReply())

    def _leave(self, message, context):
        self.heard.append("Leave")
        return wire.encode(pb.Empty())

    def _beat(self, message, context):
        self.heartbeats += 1
        return wire.encode(pb.Empty())

    def stop(self):
        self._grpc.stop(None).wait()


@pytest.fixture
def endpoints():
    ports = HeldPorts()
    yield [ports.hold("127.0.0.1") for _ in range(2)]
    ports.close()


@pytest.fixture
def job(endpoints):
    """Makes servers out of their ``exchange`` functions, and a session with them."""
    made = []

    def make(*exchanges):
        servers = [Server(endpoint, one) for endpoint, one in zip(endpoints, exchanges, strict=False)]
        session = Session(Job(0, 1, tuple(server.endpoint for server in servers), Mode.SYNC))
        made.extend([session.leave, *(server.stop for server in servers)])
        return servers, session

    yield make
    for end in made:
        end()


def messages(session, size=4):
    return {endpoint: Message({"w": np.zeros(size, "float32")}) for endpoint in session.job.endpoints}


@pytest.mark.parametrize("size", [4, 1 << 20])
def test_a_push_is_sent_again_while_the_other_server_waits_for_it(job, size):
    """As servers do that add up a norm over all of them."""
    arrived = threading.Event()

    def waits(number, context):
        assert arrived.wait(20)

    def fails_once(number, context):
        if number == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "failed")
        arrived.set()

    servers, session = job(waits, fails_once)
    assert set(session.push(messages(session, size))) == set(session.job.endpoints)
    assert [server.heard.count("Exchange") for server in servers] == [1, 2]


@pytest.mark.parametrize("size", [4, 1 << 20])
def test_nothing_of_an_exchange_waits_for_the_garbage_collector(job, size):
    _, session = job(lambda number, context: None, lambda number, context: None)
    gc.collect()
    gc.disable()
    try:
        session.push(messages(session, size))
        assert not [found for found in gc.get_objects() if type(found) is Request]
    finally:
        gc.enable()


@pytest.mark.parametrize("size", [4, 1 << 20])
def test_a_server_that_hangs_is_an_error_after_one_deadline(job, size, monkeypatch):
    over = threading.Event()
    servers, session = job(lambda number, context: None, lambda number, context: over.wait(20))
    monkeypatch.setenv("FLAGS_rpc_deadline", "500")
    with pytest.raises(ServerError, match=servers[1].endpoint):
        session.push(messages(session, size))
    over.set()
    assert servers[1].heard == ["Exchange"]


def test_a_server_that_hangs_is_named_while_a_trainer_waits_for_it(job, monkeypatch, caplog):
    monkeypatch.setattr(waiting, "_FIRST_REMINDER", 0.1)
    over = threading.Event()

    def hangs(number, context):
        for _ in range(2000):
            if over.wait(0.01) or "does not reply" in caplog.text:
                return

    servers, session = job(hangs)
    session.push(messages(session))
    over.set()
    line = next(line for line in caplog.text.splitlines() if "waiting for a server that does not reply" in line)
    assert f"server={servers[0].endpoint} step=0 seconds=" in line
    assert "resumed after" in caplog.text


def test_a_trainer_that_waits_for_a_server_keeps_its_id_at_the_others(endpoints, monkeypatch):
    monkeypatch.setattr(membership, "_HEARTBEAT_INTERVAL", 0.02)
    made, first = [], Server(endpoints[0])
    joining = threading.Thread(target=lambda: made.append(Session(Job(0, 1, tuple(endpoints), Mode.SYNC))))
    joining.start()
    wait_until(lambda: first.heartbeats)
    assert not made, "the second server is missing"
    second = Server(endpoints[1])
    joining.join(30)
    made[0].leave()
    for server in (first, second):
        server.stop()
    assert second.heard[-1] == "Leave"


def test_a_push_that_has_arrived_is_not_sent_again_while_its_update_is_pending(job, caplog):
    def waits(number, context):
        return pb.ExchangeReply(pending=number < 3, awaited=["trainer 1 (last seen 12 s ago)"])

    servers, session = job(waits)
    session.push(messages(session))
    assert servers[0].sizes[0] > servers[0].sizes[1] == servers[0].sizes[2]
    assert caplog.text.count('awaited="trainer 1 (last seen 12 s ago)"') == 2
    assert "resumed after 0 s" in caplog.text


SCRIPT = """
import sys, numpy as np
from refluid.ir.modes import Mode
from refluid.runtime.trainer.exchange_plan import Job
from refluid.runtime.trainer.packing import Message
from refluid.runtime.trainer.session import session_of

session = session_of(Job(0, 1, tuple(sys.argv[2:]), Mode.SYNC))
push = {endpoint: Message({"w": np.zeros(int(sys.argv[1]), "float32")}) for endpoint in session.job.endpoints}
session.on_leave(lambda: session.push(push))
"""


@pytest.mark.parametrize("size", [4, 1 << 20])
def test_a_script_that_just_ends_sends_its_last_gradients_and_leaves(endpoints, size):
    servers = [Server(endpoint) for endpoint in endpoints]
    try:
        subprocess.run([sys.executable, "-c", SCRIPT, str(size), *endpoints], check=True, timeout=60)
        assert [server.heard for server in servers] == [["Exchange", "Leave"]] * 2
    finally:
        for server in servers:
            server.stop()


def test_those_that_do_not_come_to_a_barrier_are_named(job):
    def others_are_missing(number, context):
        return pb.ExchangeReply(pending=True, awaited=["trainer 1 (has not joined)"], waited_seconds=5.0 * number)

    (server,), session = job(others_are_missing)
    with pytest.raises(ServerError, match=r"after 15 s still waiting for trainer 1 \(has not joined\)"):
        session.barrier(patience=12.0)
    assert len(server.heard) == 3
