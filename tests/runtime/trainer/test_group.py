"""Trainers that call each other, as threads of one process."""

import threading

import grpc
import pytest

from cluster.groups import trainers
from cluster.jobs import free_endpoints
from refluid.errors import PeerError, ServerBusyError
from refluid.runtime.trainer import group as groups
from refluid.runtime.trainer.group import TrainerGroup
from refluid.runtime.transport import wire
from refluid.runtime.transport.connection import MAILBOX, Connection
from refluid.runtime.transport.wire import pb


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(groups, "SILENCE", 0.3)
    monkeypatch.setattr(groups, "_ASK_EVERY", 0.05)
    monkeypatch.setattr(groups, "_REMIND_EVERY", 0.0)


def test_a_gather_gives_everybody_the_texts_of_all():
    with trainers(3) as (members, everybody):
        assert everybody(lambda i: members[i].gather("sizes", f"{i}")) == [["0", "1", "2"]] * 3
        assert everybody(lambda i: members[i].gather("more", f"{2 * i}")) == [["0", "2", "4"]] * 3


def test_trainers_that_do_different_things_are_told_so():
    def gather(i):
        with pytest.raises(PeerError, match=f"trainer {i}: trainer {1 - i} at .* is at '.*', and this one at") as error:
            members[i].gather(["a shuffle", "a size"][i])
        return str(error.value)

    with trainers(2) as (members, everybody):
        assert "is at 'a size', and this one at 'a shuffle': all must do the same" in everybody(gather)[0]


def test_one_that_is_gone_is_named(impatient, caplog):
    with trainers(2) as (members, everybody):
        everybody(lambda i: members[i].gather("hello"))
        members[1].close()
        with pytest.raises(PeerError, match="trainer 0: trainer 1 at 127.0.0.1:.* has not replied for .* it has ended"):
            members[0].gather("again")
        assert members[1].is_closed


def test_one_that_is_slow_is_waited_for_and_reported(impatient, caplog):
    with trainers(2) as (members, everybody), caplog.at_level("WARNING"):
        waited = threading.Event()

        def gather(i):
            if i == 1:
                assert waited.wait(60)
            return members[i].gather("a size", str(i))

        def watch():
            while "waiting for other trainers" not in caplog.text:
                waited.wait(0.02)
            waited.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        assert everybody(gather) == [["0", "1"]] * 2
        watcher.join()
        assert "awaited=[1]" in caplog.text


def test_one_that_fails_says_why():
    with trainers(3) as (members, _everybody):
        members[1].fail("ValueError: line 3 of a.txt")
        for other in (0, 2):
            with pytest.raises(PeerError, match="trainer 1 at .* has failed: ValueError: line 3 of a.txt"):
                members[other].gather("a size")


def test_a_trainer_that_was_restarted_is_not_the_one_it_was(impatient):
    with trainers(2) as (members, everybody):
        everybody(lambda i: members[i].gather("hello"))
        stranger = Connection(members[0].endpoints[0], service=MAILBOX)
        for caller, text in (
            (pb.Caller(trainer=1, incarnation=7), "it was restarted"),
            (pb.Caller(trainer=2), "trainer 0 of 2 has no other trainer with the number 2"),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                stranger.call("Ping", wire.encode(pb.CallerRequest(caller=caller)), 10.0)
            assert text in refused.value.details()
        stranger.close()


def test_an_address_in_use_is_reported():
    (endpoint,) = free_endpoints(1)
    first = TrainerGroup(0, 2, endpoint, lambda address: [address, "127.0.0.1:1"])
    with pytest.raises(ServerBusyError, match=endpoint):
        TrainerGroup(0, 2, endpoint, lambda address: [address, "127.0.0.1:1"])
    first.close()
    first.close()


def test_those_that_do_not_meet_leave_nothing_open():
    seen = []

    def meet(address):
        seen.append(address)
        raise RuntimeError("nobody there")

    with pytest.raises(RuntimeError, match="nobody there"):
        TrainerGroup(0, 2, "127.0.0.1:0", meet)
    TrainerGroup(0, 2, seen[0], lambda address: [address, "127.0.0.1:1"]).close()
