"""The mean of what trainers have pushed, in GEO training of dense programs."""

import numpy as np

from refluid.ir.modes import DELTA
from refluid.runtime.server.averages import Averages


class Held:
    """A parameter of a server, which adds deltas to it."""

    def __init__(self):
        self.averages, self.value = Averages(), {"w": np.zeros(2)}

    def push(self, trainer, value):
        self.averages.push(trainer, {"w" + DELTA: np.full(2, value)})
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


def test_values_outlive_the_message_they_came_in():
    averages, message = Averages(), np.ones(1)
    averages.push(0, {"w" + DELTA: message})
    message[:] = 9
    assert averages.deltas({"w": np.zeros(1)})["w" + DELTA].tolist() == [1.0]
