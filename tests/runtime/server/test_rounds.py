"""When servers update: decisions, without a network."""

from hypothesis import given
from hypothesis import strategies as st

from refluid.runtime.server.rounds import LearningRatePace, Rounds


def test_a_round_is_due_when_everybody_has_pushed():
    rounds = Rounds(trainers=2, waits=True)

    assert rounds.push(1, sequence=1)
    assert not rounds.due()
    assert rounds.awaited() == [0]
    assert rounds.push(0, sequence=1)
    assert rounds.due() == [0, 1], "in the order of trainers, not of arrival"


def test_a_push_that_arrives_twice_counts_once():
    rounds = Rounds(trainers=2, waits=True)
    rounds.push(0, sequence=1)

    assert rounds.push(0, sequence=1)
    rounds.push(1, sequence=1)
    rounds.applied(steps=2)

    assert (rounds.round, rounds.version) == (1, 2)
    assert not rounds.push(0, sequence=1)
    assert not rounds.due()
    assert rounds.push(0, sequence=2)


def test_a_trainer_that_left_does_not_hold_the_round():
    rounds = Rounds(trainers=2, waits=True)
    rounds.push(0, sequence=1)
    rounds.leave(1)

    assert rounds.due() == [0]


def test_what_a_trainer_pushed_before_it_left_counts():
    rounds = Rounds(trainers=3, waits=True)
    rounds.push(1, sequence=1)
    rounds.leave(1)
    rounds.push(0, sequence=1)
    rounds.leave(2)

    assert rounds.due() == [0, 1]


def test_nothing_is_due_when_all_have_left_without_a_push():
    rounds = Rounds(trainers=2, waits=True)
    rounds.leave(0)
    rounds.leave(1)

    assert not rounds.due()


def test_a_trainer_may_come_back_after_it_left():
    rounds = Rounds(trainers=2, waits=True)
    rounds.leave(1)
    rounds.push(1, sequence=5)

    assert rounds.awaited() == [0]


def test_what_arrives_is_due_at_once_in_the_other_modes():
    rounds = Rounds(trainers=2, waits=False)

    assert rounds.push(1, sequence=1)
    assert rounds.due() == [1]
    rounds.applied(steps=2)
    assert not rounds.due()
    assert not rounds.push(1, sequence=1)
    assert rounds.counted(1) == 1
    assert rounds.counted(0) == 0


def test_a_push_whose_update_has_failed_was_not_lost_in_a_restart():
    rounds = Rounds(trainers=1, waits=False)
    for sequence in (1, 2, 3):
        rounds.push(0, sequence)
        assert rounds.skip_lost() == 0
        if sequence == 2:
            rounds.discard()
        else:
            rounds.applied(steps=1)
    assert not rounds.lacks(0, 3) and rounds.lost == 0
    rounds.push(0, 6)
    assert rounds.skip_lost() == 2, "of which nobody was told"
    rounds.discard()
    assert not rounds.lacks(0, 6), "a snapshot does not wait for it"


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["push", "again", "leave"])), max_size=60))
def test_every_push_is_applied_exactly_once_whatever_is_repeated(events):
    rounds = Rounds(trainers=3, waits=True)
    sent, applied, left = [0, 0, 0], [0, 0, 0], set()
    for trainer, what in events:
        if what == "leave":
            rounds.leave(trainer)
            left.add(trainer)
        elif trainer not in left:
            waiting = sent[trainer] > applied[trainer]
            if what == "push" and not waiting:
                sent[trainer] += 1
            if sent[trainer]:
                rounds.push(trainer, sent[trainer])
        for each in rounds.due():
            applied[each] += 1
        if rounds.due():
            rounds.applied(steps=2)
        assert all(0 <= s - a <= 1 for s, a in zip(sent, applied, strict=True))
        assert [rounds.counted(t) for t in range(3)] == applied


def test_a_schedule_takes_one_step_for_one_step_of_every_trainer():
    pace = LearningRatePace(trainers=2)

    assert [advance(pace, 1) for _ in range(6)] == [1, 0, 1, 0, 1, 0]


def test_merged_pushes_advance_the_schedule_by_all_their_steps():
    pace = LearningRatePace(trainers=2)

    assert [advance(pace, 4) for _ in range(3)] == [1, 2, 2]


def test_a_schedule_counts_the_trainers_that_are_added():
    pace = LearningRatePace(trainers=2)
    assert [advance(pace, 1, present=2) for _ in range(4)] == [1, 0, 1, 0]
    assert [advance(pace, 1, present=4) for _ in range(8)] == [1, 0, 0, 0, 1, 0, 0, 0]
    assert [advance(pace, 1, present=1) for _ in range(4)] == [1, 0, 1, 0], "those that have left do not speed it up"


def advance(pace, steps, present=0):
    due = pace.due(present)
    pace.applied(steps)
    return due
