"""A listener under load: bounded memory, bounded threads for each caller, and nothing lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from cluster.jobs import wait_until
from refluid.runtime.launch.ports import HeldPorts
from refluid.runtime.transport.admission import CALLS, STREAMS, Budget, NoRoomError, Room, make_room
from refluid.runtime.transport.connection import IN_CHUNKS, SERVICE, SIZE_KEY, SMALL, STREAMED, Connection
from refluid.runtime.transport.listener import listen
from refluid.runtime.transport.refusals import BUSY, FOREIGN, MALFORMED, OVERSIZED, TOO_MANY
from refluid.runtime.transport.request import Request, RetryPolicy

MB = 1 << 20


class Server:
    """Takes messages when it may, and knows how many bytes it holds."""

    def __init__(self, threads):
        ports = HeldPorts()
        self.endpoint = ports.hold("127.0.0.1")
        self.may_reply = threading.Event()
        self.may_reply.set()
        self.got: Counter[bytes] = Counter()
        self.held = self.most = 0
        self._changing = threading.Lock()
        methods = {"Take": self._take, "Reply": self._reply, "Heartbeat": lambda *_: [b"alive"]}
        self.listener = listen(self.endpoint, methods, threads)
        self.listener.start()
        ports.close()

    def _take(self, message, context):
        with self._changing:
            self.held += len(message)
            self.most = max(self.most, self.held)
        self.may_reply.wait(30)
        with self._changing:
            self.held -= len(message)
            self.got[message[:8]] += 1
        return [b"taken"]

    def _reply(self, message, context):
        make_room(int(message))
        self.may_reply.wait(30)
        return [bytes(int(message))]

    @property
    def refused(self):
        return self.listener.refusals.counts


@pytest.fixture
def serve(monkeypatch):
    made = []

    def start(megabytes=64, threads=64):
        monkeypatch.setenv("FLAGS_rpc_max_inflight_mb", str(megabytes))
        made.append(Server(threads))
        return made[-1]

    yield start
    for server in made:
        server.may_reply.set()
        server.listener.stop(None).wait()


def test_many_callers_of_a_slow_server_share_its_budget_and_nothing_is_lost(serve, monkeypatch):
    monkeypatch.setattr("refluid.runtime.transport.admission._WAIT", 0.02)
    server, clients, each = serve(megabytes=8), 64, 3
    policy = RetryPolicy(120.0, first_pause=0.02, longest_pause=0.2)
    connections = [Connection(server.endpoint) for _ in range(clients)]

    def work(client):
        for number in range(each):
            message = b"%03d %03d " % (client, number) + bytes(2 * MB)
            assert Request(connections[client], "Take", [message], policy, threads).result() == b"taken"

    with ThreadPoolExecutor(clients) as workers, ThreadPoolExecutor(clients) as threads:
        assert len(list(workers.map(work, range(clients)))) == clients
    for connection in connections:
        connection.close()
    assert server.got == {b"%03d %03d " % (client, number): 1 for client in range(clients) for number in range(each)}
    assert server.most <= 8 * MB
    assert server.refused[BUSY] + server.refused[TOO_MANY] > 0
    assert server.listener.admission.budget.held == 0


def test_malloc_keeps_a_part_of_the_budget(monkeypatch):
    asked = []
    monkeypatch.setattr("refluid.runtime.transport.admission.give_back_freed_memory", asked.append)
    budget = Budget(80)
    for _ in range(12):
        budget.take(5, 0)
        budget.give_back(5)
    assert asked == [10] * 4


def test_a_large_message_that_waits_keeps_no_heartbeat(serve):
    server = serve(megabytes=4)
    server.may_reply.clear()
    one, other = Connection(server.endpoint), Connection(server.endpoint)
    with ThreadPoolExecutor(4) as threads:
        first = Request(one, "Take", [bytes(3 * MB)], RetryPolicy(30.0), threads)
        second = Request(other, "Take", [bytes(3 * MB)], RetryPolicy(30.0), threads)
        assert [connection.call("Heartbeat", [b""], 20.0) for connection in (one, other)] == [b"alive"] * 2
        server.may_reply.set()
        assert first.result() == second.result() == b"taken"
    one.close()
    other.close()


def code_of(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code()


def test_one_connection_cannot_take_all_threads(serve):
    server = serve()
    server.may_reply.clear()
    with grpc.insecure_channel(server.endpoint) as channel:
        streams = [channel.stream_stream(f"/{SERVICE}/Take{STREAMED}") for _ in range(STREAMS + 1)]
        calls = [stream(iter([b"x"]), timeout=30) for stream in streams]
        unary = channel.unary_unary(f"/{SERVICE}/Take")
        futures = [unary.future(b"y", timeout=30) for _ in range(CALLS + 3)]
        until = time.monotonic() + 20
        while len(refused := [future for future in futures if future.done()]) < 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(refused) == 3 and {future.code() for future in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        other = Connection(server.endpoint)
        assert other.call("Heartbeat", [b""], 20.0) == b"alive"
        server.may_reply.set()
        codes = []
        for call in calls:
            try:
                codes.append(next(call))
            except grpc.RpcError as error:
                codes.append(error.code())
        assert Counter(codes) == {b"taken": STREAMS, grpc.StatusCode.RESOURCE_EXHAUSTED: 1}
        assert other.call("Take", [b"z"], 20.0) == b"taken"
        other.close()
    assert server.refused[TOO_MANY] == 4


def test_what_is_too_large_or_does_not_say_how_large_it_is(serve):
    server = serve(megabytes=4)
    with grpc.insecure_channel(server.endpoint) as channel:
        forms = (f"/{SERVICE}/Take{form}" for form in ("", STREAMED, IN_CHUNKS))
        whole, streamed, chunked = map(channel.stream_stream, forms)

        def send(method, messages, *metadata):
            return code_of(lambda: next(method(iter(messages), timeout=20, metadata=metadata)))

        large = bytes(SMALL + 1)
        assert send(whole, [large]) is send(streamed, [large]) is grpc.StatusCode.INVALID_ARGUMENT
        assert send(chunked, [large], (SIZE_KEY, "1000")) is grpc.StatusCode.INVALID_ARGUMENT
        assert send(chunked, [b"x" * 50] * 2, (SIZE_KEY, "99")) is grpc.StatusCode.INVALID_ARGUMENT
        assert send(chunked, [b"x"], (SIZE_KEY, str(4 * MB + 1))) is grpc.StatusCode.INVALID_ARGUMENT
        assert server.refused == {OVERSIZED: 5}
        for metadata in ((), ((SIZE_KEY, "-1"),), ((SIZE_KEY, "9" * 40),), ((SIZE_KEY, "x"),)):
            assert send(chunked, [b"x"], *metadata) is grpc.StatusCode.INVALID_ARGUMENT
        few = chunked(iter([b"", b"xx"] * 20), timeout=20, metadata=((SIZE_KEY, str(4 * MB)),))
        assert next(few) == b"taken", "small buffers between large ones"
        for crumb in (b"", b"xx"):
            assert send(chunked, [crumb] * 100, (SIZE_KEY, str(4 * MB))) is grpc.StatusCode.INVALID_ARGUMENT
        assert server.refused[MALFORMED] == 6
        assert send(whole, [bytes(40 * MB)]) is grpc.StatusCode.RESOURCE_EXHAUSTED, "gRPC's own limit"
        assert code_of(lambda: channel.unary_unary(f"/{SERVICE}/Other")(b"", timeout=20))
        assert server.refused[FOREIGN] == 1
    assert server.got.total() == 1 and server.listener.admission.budget.held == 0


def test_the_same_refusal_is_logged_once(serve, caplog):
    server = serve()
    with grpc.insecure_channel(server.endpoint) as channel:
        for _ in range(5):
            code_of(lambda: channel.unary_unary(f"/{SERVICE}/Take")(bytes(SMALL + 1), timeout=20))
    assert server.refused[OVERSIZED] == 5
    assert caplog.text.count("refused a message") == 1


def test_replies_that_nobody_has_declared_share_the_budget_too(serve):
    server = serve(megabytes=8)
    budget = server.listener.admission.budget
    with grpc.insecure_channel(server.endpoint, [("grpc.max_receive_message_length", -1)]) as channel:
        whole, streamed = (channel.stream_stream(f"/{SERVICE}/Reply{form}") for form in ("", STREAMED))
        size = b"6000000"
        assert len(next(whole(iter([size]), timeout=20))) == len(next(streamed(iter([size]), timeout=20))) == int(size)
        wait_until(lambda: budget.held == 0)
        server.may_reply.clear()
        first = whole(iter([size]), timeout=20)
        wait_until(lambda: budget.held == 6_000_000 - SMALL)
        for method in (whole, streamed):
            assert code_of(lambda: next(method(iter([size]), timeout=20))) is grpc.StatusCode.RESOURCE_EXHAUSTED  # noqa: B023
        first.cancel()
        wait_until(lambda: budget.held == 0)
        server.may_reply.set()
        assert len(next(streamed(iter([size, size]), timeout=20))) == int(size)
        wait_until(lambda: budget.held == 0)
    assert server.refused == {BUSY: 2}


def test_a_call_that_has_ended_takes_no_room():
    budget = Budget(4 * MB)
    room = Room(budget)
    room.take(SMALL)
    assert budget.held == 0
    room.take(2 * MB)
    room.take(3 * MB)
    assert budget.held == 3 * MB - SMALL
    with pytest.raises(ValueError, match="a reply takes 5 MB; 4 MB are allowed, see FLAGS_rpc_max_inflight_mb"):
        room.take(5 * MB)
    room.close()
    with pytest.raises(NoRoomError, match="no room for a reply of 2 MB now"):
        room.take(2 * MB)
    assert budget.held == 0
    Room(budget, declared=9 * MB).take(9 * MB)
    assert budget.held == 0, "that was taken before"


def test_a_budget_waits_and_gives_up():
    budget = Budget(10)
    assert budget.take(6, 0) and not budget.take(6, 0)
    budget.give_back(6)
    assert budget.take(10, 0) and budget.held == 10
