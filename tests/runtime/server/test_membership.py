"""Who holds a trainer's id: decisions, with time as an argument."""

import pytest

from refluid.runtime.server import membership
from refluid.runtime.server.membership import Admission, JoinAttempt, Membership

TAKEOVER_AFTER = 5 * membership.TAKEOVER_AFTER


def joined(*incarnations):
    """A job whose trainers joined at time 0."""
    members = Membership(trainers=len(incarnations), started=0.0, heartbeat=5.0)
    for trainer, incarnation in enumerate(incarnations):
        members.join(JoinAttempt(trainer, incarnation, f"node{trainer}:{incarnation}", began=0.0), now=0.0)
    return members


def attempt(began, incarnation=99, trainer=0):
    return JoinAttempt(trainer, incarnation, f"other:{incarnation}", began)


def test_missing_trainers_are_described_with_how_long_they_are_missing():
    members = Membership(trainers=2, started=0.0)
    members.join(JoinAttempt(0, 7, "node7:4711", began=1.0), now=2.0)

    assert members.describe(0, now=5.0) == "trainer 0 on node7:4711 (last seen 3 s ago)"
    assert members.describe(1, now=5.0) == "trainer 1 (has not joined in 5 s)"
    assert members.unseen() == [1] and members.present() == [0]
    assert members.silent(now=20.0, longer_than=10.0) == [0]
    members.leave(0, now=21.0)
    assert members.silent(now=90.0, longer_than=10.0) == []
    assert not members.all_left
    members.leave(1, now=22.0)
    assert members.all_left


def test_a_trainer_that_was_evicted_may_come_back():
    members = joined(7)
    members.evict(0)
    assert members.members[0].seen is not None and members.all_left
    members.see(0, 7, now=2.0)
    assert not members.all_left, "it was only slow"
    members.leave(0, now=3.0)
    members.see(0, 7, now=4.0)
    assert members.all_left, "a trainer that has left is gone"


def test_the_process_that_holds_an_id_may_join_again():
    members = joined(7)
    again = JoinAttempt(0, 7, "node0:7", began=3.0)

    assert members.decide(again, now=3.0) is Admission.GRANTED
    assert members.join(again, now=3.0) is None, "nobody is replaced"


def test_an_id_is_refused_when_its_holder_goes_on_to_send_something():
    members = joined(7)
    members.see(0, 7, now=10.0)
    second = attempt(began=10.0)

    assert members.decide(second, now=10.0) is Admission.UNDECIDED
    members.see(0, 7, now=13.0)
    assert members.decide(second, now=13.0) is Admission.UNDECIDED, "what it sent before it was killed"
    members.see(0, 7, now=18.0)  # a heartbeat
    assert members.decide(second, now=18.0) is Admission.REFUSED
    text = members.refusal(second, now=18.5)
    assert "trainer 0 is already running as node0:7 (0.5 s ago), and other:99 tried to join" in text


def test_an_id_whose_holder_stays_silent_is_handed_over():
    members = joined(7)
    second = attempt(began=1.0)

    assert members.decide(second, now=TAKEOVER_AFTER - 0.1) is Admission.UNDECIDED
    assert members.decide(second, now=TAKEOVER_AFTER) is Admission.GRANTED
    replaced = members.join(second, now=TAKEOVER_AFTER)
    assert replaced is not None and replaced.host == "node0:7"


@pytest.mark.parametrize("how", ["leave", "evict"])
def test_an_id_that_is_free_again_is_handed_over_at_once(how):
    members = joined(7)
    members.leave(0, now=1.0) if how == "leave" else members.evict(0)

    assert members.decide(attempt(began=1.5), now=1.5) is Admission.GRANTED


def test_who_looks_at_trainers_may_go_on_when_another_one_is_added():
    members = joined(7, 8)
    looking = iter(members.members.items())
    next(looking)
    members.join(attempt(began=1.0, trainer=2), now=1.0)
    assert [trainer for trainer, _ in looking] == [1] and members.present() == [0, 1, 2]


@pytest.mark.parametrize("lives", [True, False])
def test_of_two_processes_that_wait_for_one_id_the_first_gets_it_if_it_still_lives(lives):
    members = joined(7)
    second, third = attempt(1.0, 98), attempt(2.0, 99)
    members.join(second, now=TAKEOVER_AFTER)

    assert members.decide(third, now=TAKEOVER_AFTER) is Admission.UNDECIDED, "it may have died while it waited"
    if not lives:
        assert members.decide(third, now=2 * TAKEOVER_AFTER) is Admission.GRANTED
        return
    members.see(0, 98, now=TAKEOVER_AFTER + 6)
    assert members.decide(third, now=TAKEOVER_AFTER + 6) is Admission.REFUSED
    assert "already running as other:98" in members.refusal(third, now=TAKEOVER_AFTER + 6)


def test_a_process_that_was_replaced_is_told_by_whom():
    members = joined(7)
    members.join(attempt(began=1.0), now=20.0)

    with pytest.raises(ValueError, match="no longer trainer 0: other:99 joined with the same id 2.0 s ago"):
        members.see(0, 7, now=22.0)
    assert members.members[0].seen == 20.0, "what it sends is no sign of life of its successor"


def test_a_trainer_out_of_range_is_refused():
    with pytest.raises(ValueError, match="no trainer 2 in a job of 2 trainers"):
        joined(1, 2).see(2, 3, now=0.0)


def test_a_server_is_idle_once_a_trainer_has_left_and_no_other_exchanges():
    members = joined(1, 2)
    assert members.idle_since() is None, "nobody has left"
    members.leave(0, now=5.0)
    assert members.idle_since() == 5.0
    members.see(1, 2, now=8.0).active = 8.0
    assert members.idle_since() == 8.0


def running(*progress, lead=5):
    """Members that have taken so many steps; all may be ``lead`` steps ahead of the slowest."""
    membership = Membership(len(progress), started=0.0)
    for trainer, steps in enumerate(progress):
        membership.join(JoinAttempt(trainer, 10 + trainer, "", began=0.0), now=0.0)
        membership.applied(trainer, steps)
        membership.members[trainer].max_lead = lead
    return membership


def test_a_trainer_waits_for_those_that_are_more_than_its_lead_behind():
    membership = running(10, 5, 4, 3)
    assert membership.too_far_behind(0) == [2, 3]
    assert membership.too_far_behind(1) == []
    membership.members[0].unknown_steps = 1  # it may have taken another one
    assert membership.too_far_behind(0) == [1, 2, 3]
    membership.members[0].max_lead = None
    assert membership.too_far_behind(0) == []


def test_nobody_waits_for_a_trainer_that_has_left_or_waits_at_a_barrier():
    membership = running(10, 0, 0)
    membership.leave(1, now=1.0)
    membership.members[2].at_barrier = True
    assert membership.too_far_behind(0) == []


def test_nobody_waits_for_what_a_trainer_that_comes_back_has_missed():
    membership = running(100, 97, 3)
    membership.evict(2)
    membership.see(2, 12, now=9.0)
    assert membership.too_far_behind(0) == []
    assert membership.members[2].steps == 3
    membership.applied(0, 3)
    assert membership.too_far_behind(0) == [1, 2]

    membership.evict(2)
    membership.applied(1, 3)
    membership.join(JoinAttempt(2, 99, "elsewhere", began=9.0), now=9.0)
    assert membership.too_far_behind(0) == []
