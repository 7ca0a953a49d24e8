"""Trainers that are lost, come back or are replaced, as a server and the other trainers see them; without sockets."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import paddle.fluid as fluid
from cluster.handlers import Trainer, gradients, make_servers
from cluster.jobs import wait_until
from refluid import flags
from refluid.errors import LostTrainerError
from refluid.runtime.server import exchange, server
from refluid.runtime.server.membership import Membership
from refluid.runtime.transport.wire import pb

WAIT = pb.ExchangeRequest.WAIT


@pytest.fixture
def job(monkeypatch):
    """Makes a server whose trainers have joined, and them; time is theirs to move."""
    monkeypatch.setattr(exchange, "_PENDING_AFTER", 0.05)
    monkeypatch.setattr(server, "_REPORT_EVERY", 0.0)

    def make(policy="", trainers=2, **options):
        monkeypatch.setattr(flags, "_set", {"FLAGS_rpc_lost_trainer": policy})
        (held,) = make_servers(trainers=trainers, **options).values()
        found = [Trainer(held, number) for number in range(trainers)]
        for trainer in found:
            trainer.join()
        found[0].exchange(pb.ExchangeRequest.OFFER, {})
        return held, found

    return make


def silence(held, trainer, seconds=31.0):
    """A trainer was heard so long ago, and the server notices."""
    held._membership.members[trainer].seen -= seconds
    held.check_trainers()


def heard(trainer):
    """What a trainer hears of others."""
    reply = trainer.call("Heartbeat", pb.HeartbeatRequest(caller=trainer.caller), reply=pb.HeartbeatReply)[0]
    return [notice.text for notice in reply.notices]


def successor(held, number=1, incarnation=99):
    """A process that has taken the place of a trainer, and what the server said."""
    found = Trainer(held, number, incarnation)
    reply = found.join()
    found.sequence = reply.sequence
    return found, reply


def test_a_silent_trainer_is_waited_for_and_both_sides_say_so(job, caplog):
    held, (here, _) = job()
    assert here.push(gradients(held))[0].pending
    silence(held, 1)

    text = "trainer 1 (node1:11) was silent for 31 s and is waited for until it joins again"
    assert text in caplog.text and heard(here) == [text]
    lost = "lost: it was silent for 31 s and is waited for until it joins again"
    assert list(here.exchange(WAIT)[0].awaited) == [f"trainer 1 on node1:11 (last seen 31 s ago, {lost})"]
    held.check_trainers()
    assert caplog.text.count("was silent") == caplog.text.count("was silent for 31 s"), "it is lost once"


def test_a_process_that_was_stopped_and_goes_on_is_back(job, caplog):
    held, (here, other) = job()
    here.push(gradients(held))
    silence(held, 1)
    heard(other)
    held.check_trainers()
    assert heard(here)[-1] == "trainer 1 (node1:11) is back" in caplog.text
    other.push(gradients(held))
    assert held.round == 1 and not here.exchange(WAIT)[0].pending


def test_heartbeats_keep_a_trainer_that_does_nothing_else(job, caplog):
    held, (_, other) = job("fail")
    for _ in range(5):
        held._membership.members[1].seen -= 20
        heard(other)
        held.check_trainers()
    assert "trainer 1" not in caplog.text and held.failure is None


def test_a_server_that_was_stopped_itself_blames_nobody(job, caplog):
    held, _ = job("fail")
    held.check_trainers()
    held._checked -= 40
    silence(held, 1, 40)
    assert held.failure is None and "was silent" not in caplog.text


def test_a_lost_trainer_can_be_left_out(job):
    held, (here, other) = job("leave_out")
    assert here.push(gradients(held))[0].pending
    silence(held, 1)
    assert held.round == 1 and not here.exchange(WAIT)[0].pending
    assert heard(here) == ["trainer 1 (node1:11) was silent for 31 s and is left out"]
    here.push(gradients(held))
    assert held.round == 2

    other.push(gradients(held))  # it is back
    assert held.round == 2 and heard(here)[-1] == "trainer 1 (node1:11) is back"
    here.push(gradients(held))
    assert held.round == 3


def test_a_job_can_fail_with_a_lost_trainer_and_all_are_told_its_name(job):
    held, (here, _) = job("fail")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(here.push, gradients(held))
        wait_until(lambda: held._exchange.round_began is not None)
        silence(held, 1)
        with pytest.raises(LostTrainerError, match=r"trainer 1 \(node1:11\) was silent for 31 s.*FLAGS_rpc_lost"):
            waiting.result()
    for request in (lambda: heard(here), lambda: here.barrier(1), here.join):
        with pytest.raises(LostTrainerError, match="the job has failed: trainer 1"):
            request()
    assert not held.all_left.is_set()
    here.tell("Leave")
    assert held.all_left.is_set(), "nobody is left who has not heard"


def test_a_failed_job_ends_when_all_have_had_time_to_hear_of_it(job):
    held, _ = job("fail")
    silence(held, 1)
    held._attendance.failed_at -= 13
    held.check_trainers()
    assert held.all_left.is_set()


def test_a_trainer_that_does_not_come_back_in_time_ends_the_job(job):
    held, _ = job("wait")
    silence(held, 1)
    held._membership.members[1].lost_since -= 181
    held.check_trainers()
    assert "trainer 1 (node1:11) was silent for 31 s and has not come back in 180 s" in str(held.failure)


@pytest.mark.parametrize(
    ("policy", "sync_mode", "outcome"), [("", True, "fails"), ("", False, "goes on"), ("wait", True, "waits")]
)
def test_a_trainer_that_ends_with_an_error_says_why(job, caplog, policy, sync_mode, outcome):
    held, (_, other) = job(policy, sync_mode=sync_mode)
    other.call("Leave", pb.LeaveRequest(caller=other.caller, failure="KeyError: 'x'"))
    assert "trainer 1 (node1:11) has failed: KeyError: 'x'" in caplog.text
    assert (held.failure is not None) == (outcome == "fails")
    assert held._membership.members[1].left == (outcome != "waits")
    if outcome != "fails":
        assert successor(held)[1].incarnation == held.incarnation, "its place is free at once"


def test_trainers_that_never_join_are_waited_for_and_then_the_job_fails_and_names_them():
    (held,) = make_servers(trainers=3).values()
    Trainer(held, 1).join()
    first = held._membership.members[1]
    first.joined -= 1799
    held.check_trainers()
    assert held.failure is None
    first.joined -= 2
    held.check_trainers()
    with pytest.raises(LostTrainerError, match="trainer 0 and trainer 2 did not join within 1800 s of the first one"):
        raise held.failure


@pytest.mark.parametrize("sync_mode", [True, False])
def test_a_trainer_that_is_replaced_goes_on_where_it_was_and_every_step_counts_once(job, sync_mode):
    held, (here, other) = job("wait", sync_mode=sync_mode)
    for _ in range(3):
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda trainer: trainer.push(gradients(held)), (here, other)))
    other.sequence += 1
    if sync_mode:
        other.exchange(pb.ExchangeRequest.STEP, gradients(held))  # no update includes it: the others have not pushed
    silence(held, 1)
    new, reply = successor(held)
    assert (reply.steps, reply.sequence) == (3, 3)
    assert heard(here)[-1] == "trainer 1 is back as node1:99, in the place of node1:11, after 3 steps"

    here.push(gradients(held))
    version = held._exchange.rounds.version
    assert version == (6 if sync_mode else 7), "what its predecessor pushed last is pushed again"
    new.push(gradients(held))
    assert held._exchange.rounds.version == 8
    with pytest.raises(ValueError, match="no longer trainer 1: node1:99 joined"):
        other.exchange(pb.ExchangeRequest.STEP, gradients(held), sequence=5)


def meet(*trainers, number):
    with ThreadPoolExecutor(len(trainers)) as threads:
        return [reply.pending for reply in threads.map(lambda trainer: trainer.barrier(number), trainers)]


def test_a_successor_meets_the_others_at_the_barrier_that_its_predecessor_was_to_come_to(job):
    held, (here, other) = job("wait")
    meet(here, other, number=1)
    assert here.barrier(2).pending
    silence(held, 1)
    new, _ = successor(held)
    assert not new.barrier(1).pending and not here.barrier(2).pending
    assert here.barrier(3).pending, "it counts from its own beginning"
    assert not new.barrier(2).pending and not here.barrier(3).pending


def test_a_successor_in_sync_mode_passes_the_barriers_of_its_beginning_that_others_are_past(job):
    held, (here, other) = job("wait")
    meet(here, other, number=1)
    here.push(gradients(held))  # the others train, and wait for it there
    silence(held, 1)
    new, _ = successor(held)
    assert not new.barrier(1).pending and not new.barrier(1).pending, "also if the reply is lost"
    new.push(gradients(held))
    assert held.round == 1
    assert here.barrier(2).pending and not new.barrier(2).pending and not here.barrier(2).pending


def test_a_successor_in_sync_mode_passes_barriers_before_a_step_that_only_this_server_has(job):
    held, (here, other) = job("wait")
    meet(here, other, number=1)
    other.push(gradients(held))
    here.push(gradients(held))  # the round is applied here; on another server the others wait for this trainer
    silence(held, 1)
    new, _ = successor(held)
    assert new.barrier(1).pending and not new.barrier(1, repeats=1).pending


def test_a_successor_in_sync_mode_that_trains_on_is_past_the_barrier_where_others_wait(job):
    held, (here, _) = job("wait")
    assert here.barrier(1).pending  # after a step that its predecessor has taken as well
    silence(held, 1)
    new, _ = successor(held)
    new.push(gradients(held))
    assert not here.barrier(1).pending
    here.push(gradients(held))
    assert held.round == 1
    assert here.barrier(2).pending and not new.barrier(1).pending and not here.barrier(2).pending


def test_a_successor_in_async_mode_passes_barriers_where_nobody_waits(job):
    held, (here, other) = job("wait", sync_mode=False)
    meet(here, other, number=1)
    silence(held, 1)
    new, _ = successor(held)
    assert not new.barrier(1).pending
    new.push(gradients(held))
    assert new.barrier(2).pending and not here.barrier(2).pending


def test_an_update_that_fails_because_a_trainer_is_left_out_ends_the_job_and_not_the_server(job, monkeypatch, caplog):
    held, (here, _) = job("leave_out")
    here.push(gradients(held))
    monkeypatch.setattr(held._exchange.shard, "update", lambda *_, **__: 1 / 0)
    silence(held, 1)
    assert "division by zero" in caplog.text
    with pytest.raises(RuntimeError, match="update 1 failed: ZeroDivisionError"):
        here.push(gradients(held))


@pytest.mark.parametrize(("number", "incarnation"), [(1, 99), (2, 12)])
def test_who_takes_a_place_or_is_added_does_so_between_two_updates(job, monkeypatch, number, incarnation):
    join, locked = Membership.join, []

    def watched(members, *arguments):
        locked.append(held._changed._is_owned())
        return join(members, *arguments)

    held, (_, other) = job(sync_mode=False)
    monkeypatch.setattr(Membership, "join", watched)
    other.join()
    held._membership.leave(1, time.monotonic())
    Trainer(held, number, incarnation).join(trainers=3)
    assert locked == [False, True], "who joins again need not wait"


def test_a_trainer_that_was_left_out_meets_the_others_at_their_next_barrier(job):
    held, (here, other) = job("leave_out")
    assert other.barrier(1).pending
    silence(held, 1)
    assert not here.barrier(1).pending and not here.barrier(2).pending
    assert not other.barrier(1).pending, "which the others have passed"
    assert other.barrier(2).pending and not here.barrier(3).pending and not other.barrier(2).pending


def test_a_trainer_that_was_lost_before_it_joined_a_server_is_lost_there_too(job, monkeypatch):
    monkeypatch.setattr(flags, "_set", {"FLAGS_rpc_lost_trainer": "wait"})
    one, other = make_servers(count=2, trainers=2).values()
    Trainer(one, 1).join()
    silence(one, 1)
    text = "lost: it was lost before it joined this server and is waited for until it joins again"
    assert text in other._membership.describe(1, time.monotonic())
    Trainer(other, 1).join()
    assert not other._membership.members[1].lost


def sgd():
    return fluid.optimizer.SGD(0.1)


def dense():
    x = fluid.layers.data("x", [4])
    return fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 8)))


@pytest.mark.parametrize("options", [{"sync_mode": False}, {"sync_mode": False, "geo_sgd_mode": True}])
def test_trainers_may_be_added_while_a_job_runs_and_leave_again(job, options):
    held, (here, other) = job(optimizer=sgd, **options)
    meet(here, other, number=1)
    added = Trainer(held, 4)
    assert added.join(trainers=5).steps == 0
    for trainer in (added, here, added):
        trainer.push(gradients(held))
    assert held._membership.members[4].steps == 2
    status = held.metrics.status([])["trainers"]
    assert [each["trainer"] for each in status] == [0, 1, 4]
    assert here.barrier(2).pending and other.barrier(2).pending, "it is waited for at barriers"
    assert not added.barrier(1).pending and not here.barrier(2).pending

    for trainer in (here, other):
        trainer.tell("Leave")
    assert not held.all_left.is_set()
    added.tell("Leave")
    assert held.all_left.is_set()


def test_an_added_trainer_does_not_hold_those_that_are_ahead_for_what_it_missed(job):
    held, (here, other) = job(sync_mode=False)
    for trainer in (here, other) * 5:
        trainer.push(gradients(held))
    Trainer(held, 2).join(trainers=3)
    held._membership.members[0].max_lead = 1
    assert held._membership.too_far_behind(0) == []


def test_no_trainer_is_added_in_sync_mode_nor_where_servers_keep_copies(job):
    held, _ = job()
    with pytest.raises(
        ValueError, match="trainer 2 expects 3 trainers; this server is configured for 2; trainers can be added while"
    ):
        Trainer(held, 2).join(trainers=3)
    held, _ = job(sync_mode=False, enable_dc_asgd=True, network=dense, optimizer=sgd)
    with pytest.raises(ValueError, match="trainer 2 cannot be added: with enable_dc_asgd"):
        Trainer(held, 2).join(trainers=3)
    with pytest.raises(ValueError, match="there is no trainer 3 in a job of 3 trainers"):
        Trainer(held, 3).join(trainers=3)
