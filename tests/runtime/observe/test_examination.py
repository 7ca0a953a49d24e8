"""What is wrong with a job, from the answers of its servers."""

import json
from dataclasses import asdict

from cluster.statuses import status, trainer
from refluid.runtime.observe.examination import NoAnswer, as_dict, causes, examine, joined_waits
from refluid.runtime.observe.waits import Wait

A, B = "a:1", "b:2"
REFUSED = NoAnswer("connection refused: no server listens there", "start it again")


def test_a_job_that_gets_on_is_healthy():
    short = Wait(("trainer 0",), "pushes of round 17", ("trainer 1",), 4.0)
    answers = {A: status(A, [short]), B: status(B)}
    assert examine(answers) == []
    assert as_dict(answers, [])["healthy"] is True and as_dict(answers, [])["waits"][0]["seconds"] == 4.0


def test_a_deadlock_across_servers_is_found_by_joining_what_each_knows():
    """Server A waits for trainer 1, which waits for server B, which is down."""
    waits = [
        Wait(("trainer 0",), "pushes of round 17", ("trainer 1",), 42.0),
        Wait(("trainer 1",), "a reply", (f"server {B}",), 40.0, "requests fail with UNAVAILABLE"),
    ]
    (finding,) = examine({A: status(A, waits), B: REFUSED})
    assert finding.subjects == (f"server {B}",) and finding.remedy == "start it again"
    assert finding.text == (
        "server b:2: connection refused: no server listens there; trainer 1 has waited 40 s for a reply"
    )


def test_servers_that_wait_for_different_trainers_are_joined_to_a_circle():
    one = Wait(("trainer 0",), "barrier 3", ("trainer 1",), 50.0)
    other = Wait(("trainer 1",), "pushes of round 17", ("trainer 0",), 45.0)
    (finding,) = examine({A: status(A, [one]), B: status(B, [other])})
    assert finding.text.startswith("they wait for each other: trainer 0 waits for trainer 1 (barrier 3)")


def test_the_same_wait_on_two_servers_counts_once():
    waits = [Wait(("trainer 0",), "pushes of round 17", ("trainer 1",), seconds) for seconds in (20.0, 30.0)]
    answers = {A: status(A, waits[:1]), B: status(B, waits[1:])}
    assert [wait.seconds for wait in joined_waits(answers)] == [30.0]
    assert "have not" not in causes(answers)[0].text and "has waited 30 s" in causes(answers)[0].text


def test_a_trainer_is_known_by_the_server_that_heard_of_it_last():
    wait = Wait(("trainer 0",), "pushes of round 17", ("trainer 1",), 42.0)
    late = [trainer(0), trainer(1, last_seen=60.0, idle=60.0, doing="train.py:1 in old")]
    new = [trainer(0), trainer(1, last_seen=0.5, idle=42.0, doing="train.py:7 in read")]
    (finding,) = examine({A: status(A, [wait], late), B: status(B, [], new)})
    assert "trainer 1 (node1:1) has not pushed for 42 s" in finding.text and "at train.py:7 in read" in finding.text


def test_servers_and_trainers_that_are_gone_are_found_although_nobody_waits_for_them():
    trainers = [trainer(0), trainer(1, last_seen=25.0)]
    first, second = examine({A: status(A, trainers=trainers), B: REFUSED})
    assert first.text == "server b:2: connection refused: no server listens there"
    assert second.text == "trainer 1 (node1:1) was last heard from 25 s ago, and sends a heartbeat every 5 s"


def test_trainers_that_have_left_or_not_joined_are_not_gone():
    trainers = [trainer(0, left=True, last_seen=99.0), trainer(1, joined=False, last_seen=None, idle=None, host="")]
    assert examine({A: status(A, trainers=trainers)}) == []


def test_servers_of_different_jobs():
    (mode,) = examine({A: status(A), B: status(B, mode="async", trainers=[trainer(0)])})
    (number,) = examine({A: status(A), B: status(B, trainers=[trainer(0)])})
    assert mode.text == "these servers train in different modes: sync on a:1, async on b:2"
    assert number.text == "these servers expect different numbers of trainers: 2 on a:1, 1 on b:2"


def test_what_troubles_a_server():
    recovery = {"problem": "cannot write a snapshot to /full: No space left on device"}
    queues = {"inflight_bytes": 95 << 20, "inflight_budget": 100 << 20}
    disk, memory, failed = (
        *examine({A: status(A, recovery=recovery, queues=queues)}),
        *examine({A: status(A, problem="update 17 failed: OSError: No space left on device")}),
    )
    assert disk.text == "server a:1: cannot write a snapshot to /full: No space left on device"
    assert "make room" in disk.remedy and "since" not in disk.text
    assert "server a:1 is overloaded: messages take 95 of 100 MB" in memory.text
    assert "FLAGS_rpc_max_inflight_mb" in memory.remedy
    assert failed.text == "server a:1: update 17 failed: OSError: No space left on device"


def test_findings_become_json():
    found = as_dict({A: REFUSED}, examine({A: REFUSED}))
    assert json.loads(json.dumps(found))["servers"] == {A: asdict(REFUSED)} and found["healthy"] is False
