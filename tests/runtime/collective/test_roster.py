"""What follows from what ranks say, without sockets and clocks."""

import pytest

from refluid.runtime.collective.roster import Patience, Roster

ENDPOINTS = ["a:1", "b:2"]
PATIENCE = Patience(joining=60, idle=40, busy=500, silence=45)


@pytest.fixture
def roster():
    roster = Roster(ENDPOINTS, {"port": 7}, PATIENCE, 0.0)
    assert roster.join(0, 0.0) == []
    assert roster.join(1, 0.0) == [(None, {"welcome": {"port": 7}})]
    return roster


def state(entered=0, done=0, works=False, computes=False, where="", in_script=False):
    signs = {"works": works, "computes": computes, "where": where, "in_script": in_script}
    return {"entered": entered, "done": done, "at": f"step {entered}", **signs}


def beat_until(roster, end, *states):
    """Ranks send these states every second until somebody ends the job, or the time has come; returns the verdict."""
    for now in range(1, end):
        for rank, each in enumerate(states):
            roster.beat(rank, each, now)
        replies = [(to, message) for to, message in roster.tick(now) if "end" in message]
        if replies:
            return now, *ended(replies)
    return None


def ended(replies):
    """Rank and problem of the verdict."""
    ((to, message),) = replies
    assert to is None and message["end"]["endpoint"] == ENDPOINTS[message["end"]["rank"]]
    return message["end"]["rank"], message["end"]["problem"]


def test_a_rank_that_does_not_join_is_named():
    roster = Roster(ENDPOINTS, {}, PATIENCE, 0.0)
    roster.join(0, 1.0)
    seen = {}
    for now in range(1, 62):
        roster.beat(0, state(), now)
        seen[now] = roster.tick(now)
    assert seen[9] == [] and seen[10] == [(None, {"awaited": "1 at b:2", "seconds": 10})]
    rank, problem = ended(seen[61])
    assert rank == 1 and "has not joined within 60 s: it was not started, or cannot reach rank 0 at a:1" in problem


@pytest.mark.parametrize(
    ("rank", "endpoints", "message"),
    [
        (2, ENDPOINTS, "there are 2 ranks"),
        (0, ENDPOINTS, "two processes have the same rank"),
        (1, ["a:1", "c:3"], "has the endpoints a:1,c:3, rank 0 has a:1,b:2"),
    ],
)
def test_who_does_not_belong_here_is_refused(rank, endpoints, message):
    roster = Roster(ENDPOINTS, {}, PATIENCE, 0.0)
    roster.join(0, 1.0)
    assert message in roster.refusal(rank, endpoints)


HINT = "if it does not hang but computes, let others wait longer by REFLUID_COLLECTIVE_TIMEOUT=<seconds>"


def test_a_rank_that_others_wait_for_without_a_sign_of_work_ends_the_job(roster):
    endless = state(computes=True, where="train.py:3 in read", in_script=True)
    assert beat_until(roster, 500, state(entered=1), endless) == (
        42,
        1,
        f"has not reached step 1 for 41 s, without a sign of work, at train.py:3 in read; {HINT}",
    )
    assert roster.tick(60.0) == roster.lose(0) == []  # there is one reason


def test_a_rank_that_works_is_waited_for_longer(roster):
    problem = "has not reached step 1 for 501 s; it works"
    assert beat_until(roster, 600, state(entered=1), state(works=True)) == (502, 1, problem)


def test_a_rank_that_executes_the_script_within_a_step_is_waited_for_like_one_that_has_not_reached_it(roster):
    inside = state(entered=1, computes=True, where="train.py:7 in func", in_script=True)
    assert beat_until(roster, 500, state(entered=1), inside) == (
        42,
        1,
        f"has not finished step 1 for 41 s, without a sign of work, at train.py:7 in func; {HINT}",
    )


def test_a_step_in_which_nobody_computes_ends_the_job(roster):
    problem = "has not finished step 1 for 41 s, and no rank computes: the network between them may be cut"
    assert beat_until(roster, 500, state(entered=1), state(entered=1)) == (42, 0, problem)


def test_a_step_that_nobody_finishes_ends_the_job(roster):
    problem = "has not finished step 1 for 501 s"
    assert beat_until(roster, 600, state(entered=1), state(entered=1, computes=True)) == (502, 0, problem)


def test_silence_ends_the_job(roster):
    for now in range(1, 46):
        roster.beat(0, state(), now)
        assert roster.tick(now) == []
    roster.beat(0, state(), 46.0)
    assert ended(roster.tick(46.0)) == (1, "has been silent for 46 s: it or its network has stopped")


def test_the_time_for_which_a_job_was_suspended_does_not_count(roster):
    roster.beat(0, state(entered=1), 10.0)
    roster.beat(1, state(), 10.0)
    for now in (10.0, 500.0, 500.5):  # what ranks have sent since is read later
        assert roster.tick(now) == []


def test_a_closed_connection_ends_the_job_unless_the_rank_has_left(roster):
    assert ended(roster.lose(1))[1].startswith("has ended without leaving")


def test_ranks_part_when_all_are_done(roster):
    roster.beat(0, state(3, 3), 1.0)
    roster.beat(1, state(3, 2), 1.0)
    assert roster.leave(0, 1.0) == []  # rank 1 still needs it for step 3
    assert roster.beat(1, state(3, 3), 2.0) == [(0, {"parted": True})]
    assert roster.lose(0) == []
    rank, problem = ended(roster.beat(1, state(4, 3), 3.0))
    assert rank == 0 and "has ended before step 4, which others are in" in problem


def test_a_failure_is_passed_on(roster):
    assert ended(roster.fail(1, "ValueError: bad line 3")) == (1, "has failed: ValueError: bad line 3")


@pytest.mark.parametrize(
    ("what", "lines", "problem"),
    [
        ("program", ["mul", "relu"], "brings another program\n  there       relu\n  on rank 0   add"),
        ("program", ["mul"], "brings another program: only rank 0 has\n  add"),
        ("program", ["mul", "add", "sgd"], "brings another program: only it has\n  sgd"),
        ("checkpoint", [], "is at checkpoint, rank 0 at program: all ranks must do the same"),
    ],
)
def test_what_differs_is_named(roster, what, lines, problem):
    assert roster.note(0, "program", ["mul", "add"], 1.0) == []
    assert ended(roster.note(1, what, lines, 1.0)) == (1, problem)


def test_what_is_the_same_everywhere_is_agreed_on(roster):
    for _ in range(2):
        roster.note(1, "program", ["mul"], 1.0)
        assert roster.note(0, "program", ["mul"], 1.0) == [(None, {"agreed": "program"})]


def test_the_largest_sizes_of_all_ranks_are_found(roster):
    for _ in range(2):
        assert roster.size(1, "x, y", [3, 9], 1.0) == []
        assert roster.size(0, "x, y", [5, 7], 1.0) == [(None, {"largest": [5, 9]})]
    roster.size(0, "x, y", [5, 7], 2.0)
    problem = "feeds x, rank 0 x, y: all ranks must feed the same variables"
    assert ended(roster.size(1, "x", [5], 2.0)) == (1, problem)


def test_the_limits_can_be_set(monkeypatch):
    monkeypatch.setenv("REFLUID_COLLECTIVE_TIMEOUT", "7")
    assert Patience.from_environment(5.0) == Patience(5.0, idle=7.0, busy=600.0, silence=40.0)
    monkeypatch.setenv("REFLUID_COLLECTIVE_TIMEOUT", "900")
    assert Patience.from_environment(5.0) == Patience(5.0, 900.0, 900.0, 900.0)
    monkeypatch.setenv("REFLUID_COLLECTIVE_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="expected seconds, such as 120"):
        Patience.from_environment(5.0)
