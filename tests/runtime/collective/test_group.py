"""Ranks that are threads of one process, without JAX: they connect, agree, leave and hear of each other's end."""

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from refluid.errors import PlaintextError, RankError
from refluid.runtime.collective import group as groups
from refluid.runtime.collective import join, joining
from refluid.runtime.collective.group import Group
from refluid.runtime.collective.hub import Hub
from refluid.runtime.collective.roster import Patience


@contextmanager
def ranks(count):
    """Groups that have met, a function that lets all of them do the same at once, and exit codes."""
    listener = socket.create_server(("127.0.0.1", 0))
    endpoints = [f"127.0.0.1:{listener.getsockname()[1]}", *(f"127.0.0.1:{port}" for port in range(1, count))]
    hub, codes = Hub(listener, endpoints, {}, Patience()), []
    members = [Group(endpoints, rank, Patience(joining=5), end_process=codes.append) for rank in range(count)]
    with ThreadPoolExecutor(count) as pool:

        def everybody(action):
            return [call.result(60) for call in [pool.submit(action, member) for member in members]]

        try:
            everybody(Group.await_all)
            yield members, everybody, codes
        finally:
            for member in members:
                member.leave(seconds=0)
            hub.stop(None)
    assert not [thread for thread in threading.enumerate() if thread.name == "collective-hub"]


def problem_of(action, *arguments):
    with pytest.raises(RankError) as caught:
        action(*arguments)
    return caught.value


def test_ranks_agree_and_part():
    with ranks(3) as (members, everybody, codes):
        everybody(lambda member: member.agree("program", ["mul", "add"]))
        everybody(Group.leave)
        assert codes == [] and not any(member.is_broken for member in members)


def test_ranks_find_the_largest_sizes():
    with ranks(3) as (_, everybody, _):
        for step in range(3):
            found = everybody(lambda member, step=step: member.largest("x", [member.rank + step, -member.rank]))
            assert found == [[2 + step, 0]] * 3


def test_all_ranks_raise_the_same_error_about_another_program():
    with ranks(2) as (members, everybody, _):
        lines = {0: ["mul"], 1: ["add"]}
        errors = everybody(lambda member: problem_of(member.agree, "program", lines[member.rank]))
    assert {(error.other, error.problem) for error in errors} == {
        (1, "brings another program\n  there       add\n  on rank 0   mul")
    }
    assert str(errors[0]).startswith(f"rank 1 at {members[1].endpoints[1]} brings another program")


def test_a_rank_whose_connection_ends_is_named_at_the_next_step():
    with ranks(3) as (members, _, _):
        members[2]._socket.shutdown(socket.SHUT_RDWR)  # as when its process is killed
        with members[0]._changed:
            assert members[0]._changed.wait_for(lambda: members[0].failure is not None, 10)
        with pytest.raises(RankError, match="rank 2 at .* has ended without leaving"), members[0].step():
            raise AssertionError("never runs")


def test_a_failed_collective_is_explained_by_the_rank_that_is_gone():
    def fail(member):
        if member.rank == 1:
            member.fail("ValueError: bad line 3")
            return None
        with pytest.raises(RankError) as caught, member.step():
            raise RuntimeError("Gloo all-reduce failed: Connection closed by peer")
        return caught.value

    with ranks(2) as (_, everybody, codes):
        error, _ = everybody(fail)
    assert "rank 1" in str(error) and "has failed: ValueError: bad line 3" in str(error)
    assert "Gloo" in str(error.__cause__) and codes == []


def test_other_errors_of_a_step_stay_as_they_are():
    with ranks(2) as (members, _, _), pytest.raises(RuntimeError, match="out of memory"), members[0].step():
        raise RuntimeError("out of memory")


def test_a_process_that_cannot_raise_the_error_is_ended(monkeypatch, capsys):
    monkeypatch.setattr(groups, "GRACE", 0.2)
    released, ended = threading.Event(), threading.Event()
    with ranks(2) as (members, _, _):
        members[0]._end_process = lambda code: ended.set()

        def wait_for_the_other():
            with members[0].step():
                released.wait(30)  # as XLA does

        waiting = threading.Thread(target=wait_for_the_other)
        waiting.start()
        members[1].fail("ValueError: bad line 3")
        assert ended.wait(30)
        released.set()
        waiting.join()
    assert "has failed: ValueError: bad line 3; ending this process" in capsys.readouterr().err


def test_a_rank_that_ends_too_early_is_named():
    with ranks(2) as (members, _, _):
        members[1].leave(seconds=5)
        with pytest.raises(RankError, match="rank 1 at .* has ended before step 1"), members[0].step():
            raise RuntimeError("Gloo all-reduce failed")


def test_an_unreachable_rank_0_is_named():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoints = [f"127.0.0.1:{probe.getsockname()[1]}", "127.0.0.1:1"]
        with pytest.raises(RankError, match=r"rank 0 at 127.0.0.1:\d+ cannot be reached for .*: Connection refused"):
            Group(endpoints, 1, Patience(joining=0.1))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request", "speaks another protocol"),
        (b"", "closes the connection"),
        (None, "says nothing for 0 s"),
    ],
)
def test_a_stranger_at_the_endpoint_of_rank_0_is_an_error_long_before_the_deadline(monkeypatch, answer, problem):
    monkeypatch.setattr(groups, "_REFUSED", 0.5)
    monkeypatch.setattr(groups, "_ANSWER", 0.3)
    server = socket.create_server(("127.0.0.1", 0))
    kept = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                kept.append(server.accept()[0])
                kept[-1].recv(1 << 16)
                if answer is not None:
                    kept[-1].sendall(answer)
                    kept[-1].close()

    stranger = threading.Thread(target=serve)
    stranger.start()
    first = f"127.0.0.1:{server.getsockname()[1]}"
    try:
        error = problem_of(Group, [first, "127.0.0.1:1"], 1, Patience(joining=600))
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        stranger.join()
        for connection in kept:
            connection.close()
    assert str(error).startswith(f"rank 0 at {first} is not there: what listens there {problem}")


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1", b'{"hello": {"rank": 0}}', b'{"hello": 5}', b"[]"])
def test_strangers_are_ignored(line):
    with ranks(2) as (members, everybody, _):
        host, port = members[0].endpoints[0].split(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(line + b"\r\n\r\n")
            assert stranger.recv(10) == b""
        everybody(lambda member: member.agree("program", ["mul"]))


def test_other_endpoints_are_an_error_on_both_sides():
    listener = socket.create_server(("127.0.0.1", 0))
    first = f"127.0.0.1:{listener.getsockname()[1]}"
    hub = Hub(listener, [first, "b:2"], {}, Patience())
    ours, theirs = (Group([first, *rest], rank, Patience()) for rank, rest in enumerate((["b:2"], ["c:3"])))
    for member in (ours, theirs):
        error = problem_of(member.await_all)
        assert str(error) == f"rank 1 at c:3 has the endpoints {first},c:3, rank 0 has {first},b:2"
        member.leave()
    hub.stop(None)


def test_a_port_in_use_and_an_address_of_another_machine_are_errors_at_once(monkeypatch):
    monkeypatch.setattr(joining, "_TELL", 0.1)  # there is no rank 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        error = problem_of(join, [taken, "127.0.0.1:1"], 0)
        assert str(error) == f"rank 0 at {taken} cannot listen: Address already in use"
    monkeypatch.setenv("FLAGS_rpc_allow_plaintext", "1")
    error = problem_of(join, ["127.0.0.1:1", "192.0.2.1:6170"], 1)
    assert str(error).endswith("Cannot assign requested address; is it an address of this machine?")


def test_a_rank_whose_port_is_in_use_tells_the_others():
    listener, taken = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    endpoints = [f"127.0.0.1:{server.getsockname()[1]}" for server in (listener, taken)]
    hub = Hub(listener, endpoints, {}, Patience())
    first = Group(endpoints, 0, Patience())
    assert "cannot listen: Address already in use" in str(problem_of(join, endpoints, 1))
    error = problem_of(first.await_all)
    assert str(error) == f"rank 1 at {endpoints[1]} cannot listen: Address already in use"
    first.leave()
    hub.stop(None)
    taken.close()


@pytest.mark.parametrize(
    ("endpoints", "rank", "message"),
    [
        (["a:1", "a:1"], 0, "two ranks have the same endpoint, a:1"),
        (["a:1", "b:2"], 2, "rank 2 does not exist: there are 2 endpoints"),
        (["a:1", "b"], 0, "invalid endpoint 'b'"),
    ],
)
def test_endpoints_that_cannot_be_right_are_refused(endpoints, rank, message):
    with pytest.raises(ValueError, match=message):
        join(endpoints, rank)


def test_ranks_with_the_token_of_the_job_meet(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_token", "the-token-of-the-job")
    with ranks(2) as (_, everybody, codes):
        everybody(lambda member: member.agree("program", ["mul"]))
        everybody(Group.leave)
        assert codes == []


@pytest.mark.parametrize(
    ("hub", "rank", "problem"),
    [
        ("the-token-of-the-job", "", "asks for a token (FLAGS_rpc_token)"),
        ("", "the-token-of-the-job", "knows no token (FLAGS_rpc_token)"),
        ("the-token-of-the-job", "the-token-of-another", "has another token (FLAGS_rpc_token)"),
    ],
)
def test_a_rank_and_a_hub_with_different_tokens_do_not_meet(monkeypatch, hub, rank, problem):
    """They are threads of one process: what each knows depends on who asks."""
    here = threading.current_thread()
    known = lambda: tuple(filter(None, [rank if threading.current_thread() is here else hub]))  # noqa: E731
    monkeypatch.setattr("refluid.access.tokens", known)
    listener = socket.create_server(("127.0.0.1", 0))
    endpoints = [f"127.0.0.1:{listener.getsockname()[1]}", "127.0.0.1:1"]
    serving = Hub(listener, endpoints, {}, Patience())
    try:
        assert problem in str(problem_of(Group, endpoints, 1, Patience(joining=5)))
    finally:
        serving.stop(None)


@pytest.mark.parametrize(
    "said",
    [
        b"{}", b'{"proof": "00"}', b'{"hello": {"rank": 1}}', b'{"hello": 7}', b"[]", b"x" * (1 << 21), b"\xff",
        b"[" * 100_000, b'{"hello": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_a_stranger_learns_nothing_and_stops_nothing(monkeypatch, said):
    monkeypatch.setenv("FLAGS_rpc_token", "the-token-of-the-job")
    with ranks(2) as (members, everybody, _):
        host, _, port = members[0].endpoints[0].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as stranger, contextlib.suppress(OSError):
            stranger.sendall(said + b"\n" + b'{"beat": {}}\n')
            heard = b""
            while data := stranger.recv(1 << 16):
                heard += data
            assert b"welcome" not in heard and b"\n\n" not in heard
        everybody(lambda member: member.agree("program", ["mul"]))


def test_strangers_who_come_again_and_again_are_logged_once(monkeypatch, caplog):
    monkeypatch.setenv("FLAGS_rpc_token", "the-token-of-the-job")
    with ranks(2) as (members, everybody, _), caplog.at_level("WARNING", "refluid"):
        host, _, port = members[0].endpoints[0].rpartition(":")
        for said in [b'{"hello": {}}\n{"proof": "00"}\n', b"[]\n"] * 3:
            with socket.create_connection((host, int(port)), timeout=20) as stranger:
                stranger.sendall(said)
                while stranger.recv(1 << 16):
                    pass
        everybody(lambda member: member.agree("program", ["mul"]))
    found = [record.fields["reason"] for record in caplog.records if record.fields["msg"] == "refused a message"]
    assert found == ["token", "malformed"]


def test_a_rank_refuses_to_listen_where_others_can_reach_it():
    with pytest.raises(PlaintextError, match="FLAGS_rpc_allow_plaintext=1"):
        join(["192.0.2.1:6170", "192.0.2.2:6170"], 0)
