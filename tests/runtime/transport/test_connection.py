"""Lines that stay open: answers in turn, none for somebody else, and errors as those of calls."""

from __future__ import annotations

import threading
import time

import grpc
import pytest

from refluid.runtime.launch.ports import HeldPorts
from refluid.runtime.transport.connection import LINES, SMALL, Connection, listen


class Server:
    """Answers what it is told to, over a real socket."""

    def __init__(self, endpoint):
        self.calls: set[int] = set()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.endpoint = endpoint
        self._grpc = listen(endpoint, {"Echo": self._echo}, threads=LINES + 4)
        self._grpc.start()

    def _echo(self, message, context):
        self.calls.add(id(context))
        if message == b"refuse":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no")
        self.may_answer.wait(20)
        return [b"<", message, b">"]

    def break_off(self):
        self._grpc.stop(None)

    def stop(self):
        self.may_answer.set()
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


def ask(connection, text, timeout=20.0):
    question = connection.ask("Echo", [text], timeout)
    assert question is not None
    return question


def answers(connection):
    try:
        return ask(connection, b"?").result() == b"<?>"
    except grpc.RpcError:
        return False


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_one_line_is_used_again_and_again(server, connection):
    assert [ask(connection, b"%d" % i).result() for i in range(20)] == [b"<%d>" % i for i in range(20)]
    assert len(server.calls) == 1


def test_an_old_line_is_replaced(server, connection):
    assert ask(connection, b"1").result() == b"<1>"
    (idle,) = connection._idle["Echo"]
    idle._useful_until = 0.0
    assert ask(connection, b"2").result() == b"<2>"
    assert connection._idle["Echo"] != [idle]


def test_questions_at_the_same_time_have_lines_of_their_own_and_there_are_not_too_many(server, connection):
    server.may_answer.clear()
    questions = [ask(connection, b"%d" % i) for i in range(LINES)]
    assert connection.ask("Echo", [b"one more"], 20.0) is None
    server.may_answer.set()
    assert [question.result() for question in reversed(questions)] == [b"<%d>" % i for i in reversed(range(LINES))]
    assert ask(connection, b"again").result() == b"<again>"


def test_many_threads(server, connection):
    wrong = []

    def talk(name):
        for i in range(100):
            text = b"%d %d" % (name, i)
            question = connection.ask("Echo", [text], 20.0)
            answer = question.result() if question else connection.call("Echo", [text], 20.0)
            if answer != b"<" + text + b">":
                wrong.append(answer)

    threads = [threading.Thread(target=talk, args=(name,)) for name in range(2 * LINES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_large_messages_are_no_questions(connection):
    assert connection.ask("Echo", [bytes(SMALL + 1)], 20.0) is None
    assert connection.ask("Echo", [b"short"], 20.0, expected=SMALL + 1) is None


def test_what_a_server_refuses_reaches_who_asked_and_the_next_question_is_answered(connection):
    with pytest.raises(grpc.RpcError) as caught:
        ask(connection, b"refuse").result()
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "no")
    assert ask(connection, b"next").result() == b"<next>"


def test_an_answer_that_nobody_wants_is_not_the_next_ones(server, connection):
    server.may_answer.clear()
    for _ in range(3 * LINES):  # its line is free again each time
        ask(connection, b"forgotten").cancel()
    server.may_answer.set()
    assert ask(connection, b"wanted").result() == b"<wanted>"


def test_cancelling_after_the_answer_changes_nothing(connection):
    question = ask(connection, b"1")
    question.result()
    question.cancel()
    assert ask(connection, b"2").result() == b"<2>"


def test_a_server_that_does_not_answer(server, connection):
    server.may_answer.clear()
    with pytest.raises(grpc.RpcError) as caught:
        ask(connection, b"hello", timeout=0.2).result()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_lines_that_broke_are_not_used_again(server, connection):
    server.may_answer.clear()
    questions = [ask(connection, b"%d" % i) for i in range(LINES)]
    server.may_answer.set()
    for question in questions:
        question.result()
    server.stop()
    with pytest.raises(grpc.RpcError):  # by now it is known of all of them
        connection.call("Echo", [b"hello"], 20.0)
    wait_for(lambda: not any(line.is_useful for line in connection._idle["Echo"]))
    again = Server(server.endpoint)
    try:
        wait_for(lambda: answers(connection))
        assert ask(connection, b"at once").result() == b"<at once>"
    finally:
        again.stop()


def test_a_line_that_breaks_tells_so(server, connection):
    server.may_answer.clear()
    told = threading.Event()
    question = ask(connection, b"hello")
    question.when_broken(told.set)
    server.break_off()
    assert told.wait(20)
    with pytest.raises(grpc.RpcError):
        question.result()
    late = threading.Event()
    question.when_broken(late.set)
    assert late.is_set()


def test_a_server_that_comes_back_at_the_same_place(server, connection):
    assert ask(connection, b"1").result() == b"<1>"
    server.stop()
    with pytest.raises(grpc.RpcError) as caught:
        ask(connection, b"2").result()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    again = Server(server.endpoint)
    try:
        wait_for(lambda: answers(connection))
    finally:
        again.stop()
