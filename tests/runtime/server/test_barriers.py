from refluid.runtime.server.barriers import Meetings


def test_a_meeting_waits_for_everybody():
    meetings = Meetings(3)
    meetings.come(1, 1)
    assert meetings.missing(1) == [0, 2]
    meetings.come(0, 1)
    meetings.come(2, 1)
    assert meetings.missing(1) == [] and meetings.missing(2) == [0, 1, 2]


def test_coming_again_is_coming_once():
    meetings = Meetings(2)
    meetings.come(0, 2)
    meetings.come(0, 1)  # an old message that took its time
    assert meetings.missing(2) == [1]


def test_who_has_left_is_not_waited_for():
    meetings = Meetings(2)
    meetings.come(0, 1)
    meetings.leave(1)
    assert meetings.missing(1) == []
    meetings.come(1, 1)
    assert meetings.missing(1) == []
