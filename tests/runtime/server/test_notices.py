from refluid.runtime.server.notices import BACK, LOST, Notices


def test_a_trainer_hears_what_it_has_not_heard_yet_and_nothing_about_itself():
    notices = Notices()
    notices.add(1, LOST, "trainer 1 was silent")
    notices.add(2, LOST, "trainer 2 was silent")
    notices.add(1, BACK, "trainer 1 is back")
    assert [notice.text for notice in notices.after(0, but=0)] == [
        "trainer 1 was silent",
        "trainer 2 was silent",
        "trainer 1 is back",
    ]
    assert [notice.number for notice in notices.after(1, but=0)] == [2, 3]
    assert [notice.trainer for notice in notices.after(0, but=1)] == [2]
    assert [notice.number for notice in notices.after(9, but=2)] == [1, 3], "9 is of a predecessor of the server"
