"""Streams that stay open: replies in order, each for its own request, and errors like those of unary calls."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from cluster.proxy import Proxy
from refluid.runtime.launch.ports import HeldPorts
from refluid.runtime.transport.connection import MAX_STREAMS, SMALL, Connection
from refluid.runtime.transport.listener import listen
from refluid.runtime.transport.request import Request, RetryPolicy


class Server:
    """Echoes messages over a real socket, when it may."""

    def __init__(self, endpoint):
        self.calls: set[int] = set()
        self.heard: list[bytes] = []
        self.may_reply = threading.Event()
        self.may_reply.set()
        self.endpoint = endpoint
        self._grpc = listen(endpoint, {"Echo": self._echo, "Leave": self._echo}, threads=4 * MAX_STREAMS)
        self._grpc.start()

    def _echo(self, message, context):
        self.calls.add(id(context))
        self.heard.append(message)
        if message == b"unavailable" and self.heard.count(message) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        if message == b"refuse":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no")
        self.may_reply.wait(20)
        return [b"<", message, b">"]

    def close_streams(self):
        self._grpc.stop(None)

    def stop(self):
        self.may_reply.set()
        self._grpc.stop(None).wait()


@pytest.fixture
def server():
    ports = HeldPorts()
    made = Server(ports.hold("127.0.0.1"))
    yield made
    made.stop()
    ports.close()


@pytest.fixture
def connection(server):
    made = Connection(server.endpoint)
    yield made
    made.close()


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(4 * MAX_STREAMS) as made:
        yield made


@pytest.fixture
def send(connection, threads):
    """Sends a request that is not retried."""

    def request(text, timeout=20.0):
        return Request(connection, "Echo", [text], Once(timeout), threads)

    return request


class Once(RetryPolicy):
    def allows(self, error, seconds):
        return False


def replies(send):
    try:
        return send(b"?").result() == b"<?>"
    except grpc.RpcError:
        return False


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_one_stream_is_used_again_and_again(server, send):
    assert [send(b"%d" % i).result() for i in range(20)] == [b"<%d>" % i for i in range(20)]
    assert len(server.calls) == 1


def test_an_old_stream_is_replaced(connection, send):
    assert send(b"1").result() == b"<1>"
    (idle,) = connection._idle["Echo"]
    idle._usable_until = 0.0
    assert send(b"2").result() == b"<2>"
    assert connection._idle["Echo"] != [idle]


def test_concurrent_requests_have_streams_of_their_own_and_there_are_not_too_many(server, connection, send):
    server.may_reply.clear()
    requests = [send(b"%d" % i) for i in range(MAX_STREAMS)]
    assert connection.send("Echo", [b"one more"], 20.0) is None
    server.may_reply.set()
    assert [request.result() for request in reversed(requests)] == [b"<%d>" % i for i in reversed(range(MAX_STREAMS))]
    assert send(b"again").result() == b"<again>"


def test_many_threads(send):
    wrong = []

    def work(name):
        for i in range(100):
            text = b"%d %d" % (name, i)
            reply = send(text).result()
            if reply != b"<" + text + b">":
                wrong.append(reply)

    workers = [threading.Thread(target=work, args=(name,)) for name in range(2 * MAX_STREAMS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_large_messages_do_not_go_through_a_stream(connection, send):
    assert connection.send("Echo", [bytes(SMALL + 1)], 20.0) is None
    assert connection.send("Echo", [b"short"], 20.0, reply_size=SMALL + 1) is None
    assert len(send(bytes(SMALL + 1)).result()) == SMALL + 3


def test_a_refusal_reaches_the_caller_and_the_next_request_is_served(send):
    with pytest.raises(grpc.RpcError) as caught:
        send(b"refuse").result()
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "no")
    assert send(b"next").result() == b"<next>"


def test_the_reply_to_a_cancelled_request_goes_to_nobody_else(server, send):
    server.may_reply.clear()
    for _ in range(3 * MAX_STREAMS):  # its stream is free again each time
        send(b"cancelled").cancel()
    server.may_reply.set()
    assert send(b"wanted").result() == b"<wanted>"


def test_cancelling_after_the_reply_changes_nothing(send):
    request = send(b"1")
    request.result()
    request.cancel()
    assert send(b"2").result() == b"<2>"


def test_a_server_that_does_not_reply(server, send):
    server.may_reply.clear()
    with pytest.raises(grpc.RpcError) as caught:
        send(b"hello", timeout=0.2).result()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_streams_that_failed_are_not_used_again(server, connection, send):
    server.may_reply.clear()
    requests = [send(b"%d" % i) for i in range(MAX_STREAMS)]
    server.may_reply.set()
    for request in requests:
        request.result()
    server.stop()
    with pytest.raises(grpc.RpcError):  # by now all of them are known to have failed
        connection.call("Echo", [b"hello"], 20.0)
    wait_for(lambda: not any(stream.is_usable for stream in connection._idle["Echo"]))
    again = Server(server.endpoint)
    try:
        wait_for(lambda: replies(send))
        assert send(b"at once").result() == b"<at once>"
    finally:
        again.stop()


def test_a_stream_that_fails_reports_it(server, connection):
    server.may_reply.clear()
    reported = threading.Event()
    stream = connection.send("Echo", [b"hello"], 20.0)
    stream.on_failure(reported.set)
    server.close_streams()
    assert reported.wait(20)
    with pytest.raises(grpc.RpcError):
        stream.receive()
    late = threading.Event()
    stream.on_failure(late.set)
    assert late.is_set()
    connection.release("Echo", stream, None)


def test_a_server_that_comes_back_at_the_same_endpoint(server, send):
    assert send(b"1").result() == b"<1>"
    server.stop()
    with pytest.raises(grpc.RpcError) as caught:
        send(b"2").result()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    again = Server(server.endpoint)
    try:
        wait_for(lambda: replies(send))
    finally:
        again.stop()


def test_control_calls_are_retried_by_grpc(server, connection):
    """One that fails is sent again under its method's policy; exchanges are not."""
    with pytest.raises(grpc.RpcError):
        connection.call("Echo", [b"unavailable"], 20.0)
    assert server.heard.count(b"unavailable") == 1
    assert connection.call("Leave", [b"unavailable"], 20.0) == b"<unavailable>"
    assert server.heard.count(b"unavailable") == 3


def test_a_control_call_does_not_wait_behind_other_messages(server):
    with Proxy(server.endpoint) as proxy:
        connection = Connection(proxy.endpoint)
        assert connection.call("Echo", [b"hello"], 20.0) == b"<hello>"
        proxy.forget()  # what is sent on connections there are goes nowhere
        assert connection.call("Leave", [b"bye"], 20.0) == b"<bye>"
        with pytest.raises(grpc.RpcError, match=r"(?i)deadline exceeded"):
            connection.call("Echo", [b"hello"], 0.2)
        connection.close()
