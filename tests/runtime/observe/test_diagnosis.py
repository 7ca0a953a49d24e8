"""Why a job does not get on, found in who waits for whom."""

from dataclasses import replace

import pytest

from refluid.runtime.observe.diagnosis import find_causes
from refluid.runtime.observe.waits import Party, Wait

A, B = "server a:1", "server b:2"
ROUND = Wait(("trainer 0", "trainer 2"), "pushes of round 17", ("trainer 1",), 42.0)
ALIVE = Party("trainer 1", where="node7:4711", heard=1.2, idle=42.0)


def only_cause(waits, *parties):
    (cause,) = find_causes(waits, parties)
    return cause


def test_a_trainer_that_is_alive_and_does_not_push_is_slow():
    cause = only_cause([ROUND], ALIVE)
    assert cause.text == (
        "trainer 1 (node7:4711) has not pushed for 42 s; its last heartbeat is 1 s old: it is alive, and slow, or it "
        "compiles or reads data; trainers 0, 2 have waited 42 s for pushes of round 17"
    )
    assert cause.blamed == ("trainer 1",) and "threads in the log of trainer 1" in cause.remedy


def test_where_a_slow_trainer_is_belongs_to_it():
    assert "it is alive, at train.py:31 in batches: read(), and slow" in (
        only_cause([ROUND], replace(ALIVE, doing="train.py:31 in batches: read()")).text
    )


def test_a_trainer_without_heartbeats_is_dead_or_cut_off():
    cause = only_cause([ROUND], replace(ALIVE, heard=25.0))
    assert "trainer 1 (node7:4711) was last heard from 25 s ago" in cause.text
    assert "killed or stopped, its machine is overloaded, or the network between is cut" in cause.text
    assert cause.remedy.startswith("start trainer 1 again")


def test_a_trainer_that_is_lost_is_to_be_started_again():
    cause = only_cause([ROUND], replace(ALIVE, heard=31.0, lost="was silent for 31 s"))
    assert "trainer 1 (node7:4711) was silent for 31 s and is waited for until it joins again; trainers" in cause.text
    assert cause.remedy.startswith("start trainer 1 again")


def test_a_trainer_that_has_not_joined():
    wait = Wait((A,), "trainers to join", ("trainer 1",), 60.0)
    cause = only_cause([wait], Party("trainer 1", has_joined=False))
    assert cause.text == "trainer 1 has not joined; server a:1 has waited 60 s for trainers to join"


def test_whoever_waits_is_not_to_blame():
    """Server A waits for trainer 1, which waits for server B, which is down."""
    down = Wait(("trainer 1",), "a reply", (B,), 40.0, "no server listens there yet")
    cause = only_cause([ROUND, down], ALIVE)
    assert cause.blamed == (B,)
    assert cause.text == "server b:2: no server listens there yet; trainer 1 has waited 40 s for a reply"


def test_a_dead_trainer_is_to_blame_whatever_it_said_last():
    said = Wait(("trainer 1",), "a reply", (B,), 40.0)
    blamed = {cause.blamed for cause in find_causes([ROUND, said], [replace(ALIVE, heard=60.0)])}
    assert ("trainer 1",) in blamed


@pytest.mark.parametrize("doing", ["", "train.py:8 in main: save()"])
def test_trainers_that_wait_for_each_other(doing):
    barrier = Wait(("trainer 0",), "barrier 3", ("trainer 1",), 50.0)
    push = Wait(("trainer 1",), "pushes of round 17", ("trainer 0",), 45.0)
    cause = only_cause([barrier, push], Party("trainer 0", heard=1.0, doing=doing), replace(ALIVE))
    at = f", at {doing}" if doing else ""
    assert cause.text == (
        f"they wait for each other: trainer 0{at} waits for trainer 1 (barrier 3); trainer 1 waits for trainer 0 "
        "(pushes of round 17)"
    )
    assert "same order" in cause.remedy and cause.seconds == 50


def test_a_circle_beside_another_cause_is_found():
    circle = [Wait((A,), "a sum", (B,), 20.0), Wait((B,), "a sum", (A,), 20.0)]
    first, second = find_causes([*circle, ROUND], [ALIVE])
    assert first.blamed == ("trainer 1",), "the longest wait comes first"
    assert set(second.blamed) == {A, B}


def test_a_server_whose_disk_does_not_write():
    waits = [
        Wait(("trainer 0",), "a reply", (A,), 31.0),
        Wait((A,), "its log to be written", (f"the disk of {A}",), 33.0),
    ]
    assert only_cause(waits).text == (
        "the disk of server a:1 is slow or does not write; server a:1 has waited 33 s for its log to be written"
    )


def test_an_update_that_takes_long():
    """A server that is awaited for its own work waits for nobody."""
    cause = only_cause([Wait(("trainer 0", "trainer 1"), "an update", (A,), 30.0)], Party(A))
    assert cause.text == (
        "server a:1 is at work, as with a long update, or stopped, overloaded or cut off; trainers 0, 1 have "
        "waited 30 s for an update"
    )


def test_a_server_that_has_nothing_to_do_has_no_cause():
    assert find_causes([replace(ROUND, blocks=False)], [ALIVE]) == []
    assert find_causes([], []) == []
