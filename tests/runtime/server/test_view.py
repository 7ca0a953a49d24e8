"""What a server sees of its job, and what its trainers and tools hear of it."""

import json
import threading
import time

import pytest

from cluster.handlers import Trainer, gradients, make_servers
from refluid.runtime.observe.waits import Wait, from_message
from refluid.runtime.server import exchange
from refluid.runtime.transport.wire import pb


@pytest.fixture
def held(monkeypatch):
    """A server of two trainers, which have joined."""
    monkeypatch.setattr(exchange, "_PENDING_AFTER", 0.01)
    (found,) = make_servers(trainers=2).values()
    found.two = [Trainer(found, number) for number in range(2)]
    for trainer in found.two:
        trainer.join()
    return found


def beat(trainer, doing="", waits=()):
    request = pb.HeartbeatRequest(caller=trainer.caller, step=3, doing=doing, waits=waits)
    return from_message(trainer.call("Heartbeat", request, reply=pb.HeartbeatReply)[0].waits)


def status(held):
    message = b"".join(held.handle("Status", b"\0\0\0\0"))
    found = pb.Text.FromString(message[4 : 4 + int.from_bytes(message[:4], "little")])
    return json.loads(found.text)


def push(trainer):
    trainer.push(gradients(trainer.server))


def test_a_round_names_who_waits_and_who_is_awaited_and_tells_that_trainer(held):
    one, other = held.two
    push(one)
    (wait,) = held.view.waits(time.monotonic() + 42)
    assert (wait.who, wait.what, wait.awaited) == (("trainer 0",), "pushes of round 1", ("trainer 1",))
    assert 41 < wait.seconds < 60
    (told,) = beat(other, doing="train.py:31 in batches: read()")
    assert (told.who, told.what) == (("trainer 0",), "pushes of round 1")
    assert beat(one) == [], "nobody waits for trainer 0"

    found = status(held)
    assert "it is alive, at train.py:31 in batches: read(), and slow" in found["cause"]
    assert found["queues"]["queued_pushes"] == 1 and found["waits"][0]["awaited"] == ["trainer 1"]
    assert found["trainers"][1]["doing"] == "train.py:31 in batches: read()" and found["trainers"][1]["idle"] is None
    assert "at train.py:31 in batches: read())" in held._membership.describe(1, time.monotonic())


def test_what_a_trainer_waits_for_is_known_until_it_gets_on(held):
    said = pb.Wait(who=["trainer 9"], what="a reply", awaited=["server b:2"], seconds=40.0, problem="no reply")
    beat(held.two[1], waits=[said])
    assert Wait(("trainer 1",), "a reply", ("server b:2",), 40.0, "no reply") in [
        Wait(each.who, each.what, each.awaited, round(each.seconds, 0), each.problem)
        for each in held.view.waits(time.monotonic())
    ], "whatever it says of its name"
    held.two[1].exchange(pb.ExchangeRequest.READ)
    assert held.view.waits(time.monotonic()) == []


def test_what_trainers_say_is_cut(held):
    waits = [pb.Wait(who=["x" * 400] * 70, what="y" * 1000, awaited=["z"] * 100, seconds=1.0)] * 70
    beat(held.two[1], doing="d" * 10_000, waits=waits)
    member = held._membership.members[1]
    assert len(member.doing) == 300 and len(member.waits) == 64
    assert len(member.waits[0].who) == len(member.waits[0].awaited) == 64 and len(member.waits[0].what) == 300


def test_a_barrier_names_both_sides(held):
    held.two[1].barrier(3)
    (wait,) = held.view.waits(time.monotonic())
    assert (wait.who, wait.what, wait.awaited) == (("trainer 1",), "barrier 3", ("trainer 0",))


def test_a_server_that_waits_for_others_to_leave_does_not_stall(held):
    held.two[0].tell("Leave")
    seen = held.view.observe(time.monotonic())
    assert [wait.what for wait in seen.waits] == ["trainers to train on or leave"]
    assert not any(wait.blocks for wait in seen.waits)


def test_progress_is_what_was_done_and_not_what_was_asked_again(held):
    def progress():
        return held.view.observe(time.monotonic()).progress

    one, other = held.two
    begin = progress()
    push(one)
    pushed = progress()
    one.exchange(pb.ExchangeRequest.WAIT)
    beat(other)
    assert begin != pushed == progress()
    other.exchange(pb.ExchangeRequest.READ)
    read = progress()
    assert read != pushed, "a trainer that evaluates gets on"
    push(other)
    assert progress() != read


def test_an_update_that_takes_long_is_a_wait_for_the_server(held, monkeypatch):
    one, other = held.two
    entered, leaves = threading.Event(), threading.Event()

    def update(*arguments, **options):
        entered.set()
        leaves.wait()

    monkeypatch.setattr(held._exchange.shard, "update", update)
    push(one)
    thread = threading.Thread(target=push, args=[other])
    thread.start()
    entered.wait()
    found = held.view.observe(time.monotonic() + 30)  # without the lock, which the update holds
    leaves.set()
    thread.join()
    assert ("an update", (f"server {held.endpoint}",)) in [(wait.what, wait.awaited) for wait in found.waits]


def test_a_sum_over_servers_names_those_that_are_missing():
    first, second = make_servers(count=2, clip=1.0).values()
    entered, peers = threading.Event(), first.peers
    found = []

    def look():
        while peers.summing is None:
            time.sleep(0.001)
        found.append(first.view.waits(time.monotonic() + 30))
        entered.set()
        peers.know(0, "norm", [])
        with peers._changed:
            peers._changed.notify_all()

    thread = threading.Thread(target=look)
    thread.start()
    peers.sum(0, "norm", [first.endpoint, second.endpoint], [])
    thread.join()
    (wait,) = [wait for wait in found[0] if wait.what == "parts of a sum over servers"]
    assert (wait.who, wait.awaited) == ((f"server {first.endpoint}",), (f"server {second.endpoint}",))
    assert peers.summing is None
