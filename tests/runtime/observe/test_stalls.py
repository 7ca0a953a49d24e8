"""When a process that does not get on says so."""

from refluid.runtime.observe.stalls import Stall, Stalls


def reported(stalls, looks):
    """The reports of looks, which are (time, progress, whether something is waited for)."""
    found = [(now, stalls.look(now, progress, waits=waits)) for now, progress, waits in looks]
    return {now: stall for now, stall in found if stall is not None}


def test_a_stall_is_reported_once_and_again_after_growing_pauses():
    found = reported(Stalls(30, 0), ((now, "same", True) for now in range(500)))
    assert list(found) == [30, 60, 120, 240, 480]
    assert found[30] == Stall(30, is_over=False)


def test_pauses_do_not_grow_beyond_ten_minutes():
    found = list(reported(Stalls(30, 0), ((now, "same", True) for now in range(3000))))
    assert found[-1] - found[-2] == 600


def test_whoever_moves_or_waits_for_nothing_does_not_stall():
    assert reported(Stalls(30, 0), ((now, now // 20, True) for now in range(500))) == {}
    assert reported(Stalls(30, 0), ((now, "same", False) for now in range(500))) == {}
    assert reported(Stalls(30, 0), ((now, "same", now % 25 > 0) for now in range(500))) == {}, (
        "it waits for a while only"
    )


def test_the_end_of_a_stall_is_reported_once_and_the_next_one_begins_anew():
    looks = [(now, now // 70, True) for now in range(140)]
    found = reported(Stalls(30, 0), looks)
    assert [(now, stall.is_over) for now, stall in found.items()] == [
        (30, False),
        (60, False),
        (70, True),
        (100, False),
        (130, False),
    ]
    assert found[70].seconds == 70
