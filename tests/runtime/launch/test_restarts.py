from refluid.runtime.launch.restarts import FORGET_AFTER, Restarts


def test_pauses_grow_and_restarts_end():
    lives = Restarts(3)
    assert [lives.fail(now=10.0, lived=1.0, code=1) for _ in range(4)] == [1.0, 2.0, 4.0, None]
    assert Restarts(0).fail(now=0.0, lived=1.0, code=1) is None


def test_the_next_life_begins_after_the_pause():
    lives = Restarts(1)
    assert not lives.is_due(0.0)
    lives.fail(now=10.0, lived=1.0, code=1)
    assert not lives.is_due(10.9) and lives.is_due(11.0)


def test_a_process_that_has_run_for_long_has_its_restarts_back():
    lives = Restarts(1)
    for _ in range(5):
        assert lives.fail(now=0.0, lived=FORGET_AFTER, code=1) == 1.0
    assert lives.fail(now=0.0, lived=1.0, code=1) is None
