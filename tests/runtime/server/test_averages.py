"""The mean of what trainers have pushed, in GEO training of dense programs."""

import numpy as np
import pytest

from refluid.ir.modes import DELTA
from refluid.runtime.server.averages import Averages


class Held:
    """A parameter of a server, which adds deltas to it."""

    def __init__(self):
        self.averages, self.value = Averages(), {"w": np.zeros(2)}

    def push(self, trainer, value, now=0.0):
        self.averages.push(trainer, {"w" + DELTA: np.full(2, value)}, now)
        self.value["w"] = self.value["w"] + self.averages.deltas(self.value)["w" + DELTA]
        return self.value["w"].tolist()


def test_the_first_push_stands_for_all_and_the_others_join_the_mean():
    held = Held()
    assert held.push(0, 2.0) == [2.0, 2.0]
    assert held.push(1, 4.0) == [3.0, 3.0]
    assert held.push(0, 6.0) == [5.0, 5.0]
    assert held.push(2, 8.0) == [6.0, 6.0]


def test_pushing_the_mean_itself_changes_nothing_however_late_a_trainer_starts():
    held = Held()
    for _ in range(5):
        held.push(0, 7.0)
    for _ in range(5):
        assert held.push(1, 7.0) == held.push(0, 7.0) == [7.0, 7.0]


def test_a_trainer_that_has_left_or_is_far_behind_does_not_hold_the_mean_back():
    held = Held()
    held.push(1, 0.0)
    assert [held.push(0, 8.0)[0] for _ in range(4)] == [4.0, 4.0, 8.0, 8.0]
    assert held.push(1, 2.0) == [5.0, 5.0], "it counts again when it pushes"


def test_trainers_that_take_turns_learn_as_fast_as_one_alone():
    held, own = Held(), {0: np.zeros(2), 1: np.zeros(2)}
    for turn in range(40):
        trainer = turn % 2
        held.push(trainer, float(own[trainer][0]) + 1.0, now=turn + 0.9 * trainer)  # trainer 1 comes right before 0
        own[trainer] = held.averages.reply(trainer, held.value)["w"]
    assert 18.5 <= held.value["w"][0] <= 20.5, "each has learned 20 times, by 1"


@pytest.mark.parametrize(("learned", "value"), [(4.0, 2.5 + 2.0), (-4.0, -1.5), (0.0, 0.5)])
def test_a_trainer_that_learns_on_goes_on_with_what_others_will_have_learned(learned, value):
    held = Held()
    for trainer, pushed, now in ((0, 0.0, 0.0), (1, 0.0, 0.0), (0, 2.0, 5.0)):
        held.push(trainer, pushed, now)
        held.averages.reply(trainer, held.value)
    assert held.value["w"].tolist() == [1.0, 1.0]
    held.push(0, 1.0 + learned, now=10.0)
    assert held.averages.reply(0, held.value)["w"].tolist() == [value, value]


def test_values_outlive_the_message_they_came_in():
    averages, message = Averages(), np.ones(1)
    averages.push(0, {"w" + DELTA: message}, now=0.0)
    message[:] = 9
    assert averages.deltas({"w": np.zeros(1)})["w" + DELTA].tolist() == [1.0]
