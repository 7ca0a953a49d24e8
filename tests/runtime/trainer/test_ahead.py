"""How far ahead a trainer goes, from the times of messages and the directions of gradients."""

import itertools

import numpy as np
import pytest

from refluid.runtime.trainer.ahead import Ahead
from refluid.runtime.trainer.pacing import Pacing
from refluid.runtime.transport.wire import Rows

ADAPTS = Pacing(max_staleness=4, adapts=True)


def run(ahead, gradients, message=1.0, step=0.1):
    """What is allowed after each of some messages."""
    found = []
    for gradient in gradients:
        ahead.stepped(step)
        ahead.replied(message, [np.array(gradient, "float32"), Rows(np.array([1]), np.ones((1, 2)))])
        found.append(ahead.allowed)
    return found


def test_a_fixed_bound_is_allowed_from_the_first_step():
    ahead = Ahead(Pacing(max_staleness=3))
    assert run(ahead, [[1.0]] * 3) == [3, 3, 3]


def test_it_grows_by_a_step_per_message_while_gradients_agree_up_to_the_bound():
    found = run(Ahead(ADAPTS), [[1.0, 2.0]] * 20)
    assert found[:3] == [0] * 3, "the first messages compile"
    assert all(after - before in (0, 1) for before, after in itertools.pairwise(found))
    assert found[-1] == 4


def test_it_begins_again_when_gradients_point_back():
    ahead = Ahead(ADAPTS)
    run(ahead, [[1.0, 2.0]] * 20)
    assert run(ahead, [[1.0, 2.0], [-1.0, -1.9]]) == [4, 0]
    assert run(ahead, [[1.0, 2.0], [-1.0, -2.0]] * 6)[-1] == 0
    found = run(ahead, [[1.0, 2.0]] * 10)
    assert found[:3] == [0, 1, 2] and found[-1] == 4


def test_gradients_without_a_common_direction_change_nothing():
    ahead = Ahead(ADAPTS)
    assert run(ahead, np.eye(12)[:12].tolist())[-1] == 0
    assert run(ahead, [np.zeros(12).tolist()] * 8)[-1] == 0


@pytest.mark.parametrize(("message", "allowed"), [(0.05, 0), (0.19, 0), (0.45, 2), (10.0, 4)])
def test_only_as_many_steps_as_fit_into_half_the_time_of_a_message(message, allowed):
    assert run(Ahead(ADAPTS), [[1.0]] * 30, message=message)[-1] == allowed


def test_it_waits_for_messages_again_when_they_become_faster_than_steps():
    ahead = Ahead(ADAPTS)
    assert run(ahead, [[1.0]] * 20)[-1] == 4
    assert run(ahead, [[1.0]] * 5, message=0.01)[-1] == 0


def test_large_gradients_are_not_compared():
    assert run(Ahead(ADAPTS), [np.ones((1 << 20) + 1)] * 8)[-1] == 0


def test_gradients_that_are_not_finite_point_nowhere():
    ahead = Ahead(ADAPTS)
    assert run(ahead, [[1.0]] * 20)[-1] == 4
    assert run(ahead, [[np.inf]])[-1] == 0
