"""What the watchdog of a process writes."""

import logging

import pytest

from refluid import flags
from refluid.log import Log
from refluid.runtime.observe import watchdog
from refluid.runtime.observe.waits import Party, Wait
from refluid.runtime.observe.watchdog import Observation, Watchdog

SEEN = Observation(
    progress=(17, 3),
    waits=[
        Wait(("trainer 0",), "pushes of round 18", ("trainer 1",), 42.0),
        Wait(("trainer 1",), "a reply", ("server b:2",), 40.0, "no reply"),
    ],
    parties=[Party("trainer 1", heard=1.0, idle=42.0)],
    counts={"round": 17, "queued_pushes": 1},
)


@pytest.fixture
def dog(monkeypatch):
    monkeypatch.setattr(flags, "_set", {"FLAGS_rpc_watchdog_secs": 30.0})
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: 100.0)
    return Watchdog(Log("server", endpoint="a:1"), lambda now: SEEN)


def lines(caplog, dog, *times):
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for now in times:
            dog.look(now)
    return [record.getMessage() for record in caplog.records]


def test_a_stall_is_written_with_cause_counts_waits_and_threads(dog, caplog):
    assert lines(caplog, dog, 101.0, 130.0) == []
    first, *others = lines(caplog, dog, 131.0)
    assert first == (
        'role=server endpoint=a:1 msg="nothing moves" seconds=30 '
        'cause="server b:2: no reply; trainer 1 has waited 40 s for a reply" round=17 queued_pushes=1'
    )
    assert others[:2] == [
        'role=server endpoint=a:1 msg=wait who="trainer 0" what="pushes of round 18" awaited="trainer 1" seconds=42',
        'role=server endpoint=a:1 msg=wait who="trainer 1" what="a reply" awaited="server b:2" seconds=40 '
        'problem="no reply"',
    ]
    assert all("msg=thread thread=" in line and " at=" in line for line in others[2:])
    assert lines(caplog, dog, 132.0) == []


def test_that_it_moves_again_is_written(dog, caplog, monkeypatch):
    assert lines(caplog, dog, 101.0, 131.0)
    monkeypatch.setattr(dog, "_observe", lambda now: Observation((18, 3), SEEN.waits, counts={"round": 18}))
    assert lines(caplog, dog, 150.0) == ['role=server endpoint=a:1 msg="moves again after 49 s" round=18']


def test_with_0_it_says_nothing(caplog, monkeypatch):
    monkeypatch.setattr(flags, "_set", {"FLAGS_rpc_watchdog_secs": 0.0})
    dog = Watchdog(Log("server"), lambda now: SEEN)
    assert lines(caplog, dog, *range(0, 1000, 10)) == []


def test_a_look_that_fails_is_made_again(dog, caplog, monkeypatch):
    """The state changes while it is read without a lock."""
    looks = iter([RuntimeError("dictionary changed size during iteration"), SEEN])

    def observe(now):
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(dog, "_observe", observe)
    assert lines(caplog, dog, 101.0, 200.0) == []
