from refluid.runtime.server.barriers import Barriers


def test_a_barrier_waits_for_all_trainers():
    barriers = Barriers(3)
    barriers.arrive(1, 1, now=4.0)
    assert barriers.missing(1) == [0, 2] and barriers.open() == (1, 4.0)
    barriers.arrive(0, 1, now=5.0)
    assert barriers.since(1) == 4.0, "since the first arrival"
    barriers.arrive(2, 1, now=6.0)
    assert barriers.missing(1) == [] and barriers.missing(2) == [0, 1, 2]
    assert barriers.open() is None


def test_arriving_again_is_arriving_once():
    barriers = Barriers(2)
    barriers.arrive(0, 2, now=0.0)
    barriers.arrive(0, 1, now=1.0)  # an old message that took its time
    assert barriers.missing(2) == [1]


def test_a_trainer_that_has_left_is_not_waited_for():
    barriers = Barriers(2)
    barriers.arrive(0, 1, now=0.0)
    barriers.leave(1)
    assert barriers.missing(1) == [] and barriers.open() is None
    barriers.arrive(1, 1, now=1.0)
    assert barriers.missing(1) == []


def test_trainers_learn_what_the_others_brought():
    barriers = Barriers(3)
    barriers.arrive(0, 1, now=0.0, text="a")
    barriers.leave(1)
    barriers.arrive(2, 1, now=1.0, text="c")
    barriers.arrive(0, 2, now=2.0)
    assert barriers.texts(1) == {0: "a", 2: "c"}, "until the last trainer has moved on: its reply may get lost"
    barriers.arrive(2, 2, now=3.0)
    assert barriers.texts(1) == {} and barriers.texts(2) == {0: "", 2: ""}


def test_a_trainer_that_comes_back_is_waited_for_from_the_next_barrier_on():
    barriers = Barriers(2)
    for number in (1, 2, 3):
        barriers.arrive(0, number, now=0.0)
        if number == 1:
            barriers.arrive(1, 1, now=0.0)
            barriers.leave(1)
    assert barriers.enter(1) == 2, "it has missed two"
    assert barriers.reached(1) == 3 and barriers.missing(4) == [0, 1]
    assert barriers.enter(5) == 3, "a new one counts as far as the others"


def test_an_arrival_can_be_taken_back_while_others_are_awaited():
    barriers = Barriers(2)
    barriers.arrive(1, 1, now=0.0)
    barriers.retract(1, 1)
    assert barriers.open() is None and barriers.missing(1) == [0, 1]
    barriers.arrive(0, 1, now=1.0)
    assert barriers.at(1) == [0] and barriers.open() == (1, 1.0)


def test_a_restarted_server_knows_where_trainers_were():
    barriers, again = Barriers(3), Barriers(3)
    for trainer in range(3):
        barriers.arrive(trainer, 1, now=0.0)
    barriers.leave(2)
    again.restore(barriers.state())
    assert again.missing(1) == [] and again.missing(2) == [0, 1] and again.enter(2) == 0


def test_a_restarted_server_hears_how_far_trainers_are_and_counts_new_ones_as_far():
    again = Barriers(2)
    for trainer in range(2):
        again.passed(trainer, 7)
    assert again.enter(2) == 7 and again.missing(8) == [0, 1, 2]


def test_a_trainer_that_does_not_wait_for_others_takes_no_more_memory_with_every_barrier():
    barriers = Barriers(2)
    barriers.arrive(1, 1, now=0.0, text="waits")
    for number in range(1, 1000):
        barriers.arrive(0, number, now=1.0, text="runs")
    barriers.leave(0)
    for number in range(1000, 2000):
        barriers.arrive(0, number, now=2.0, text="runs")
    for kept in (barriers.texts, barriers.since):
        assert sum(bool(kept(number)) for number in range(2000)) <= 3
    assert barriers.texts(1) == {1: "waits"}
