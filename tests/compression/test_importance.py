"""How much to prune."""

import numpy as np
import pytest

from refluid.compression.importance import least_important, ratios_by_sensitivity, uniform_ratio

TRIED = [0.25, 0.5, 0.75]


def sensitivity(cost):
    return {"pruned_percent": TRIED, "loss": [cost(ratio) for ratio in TRIED]}


def test_slices_with_small_norms_go_first():
    weight = np.array([[3, -3], [1, 0], [0, -2], [9, 9]], "float32")
    assert least_important(weight, 0.5, axis=0).tolist() == [1, 2]
    assert least_important(weight, 0.1, axis=0).tolist() == []
    assert least_important(weight, 0.5, axis=1).tolist() == [0]


def test_a_uniform_ratio_reaches_the_target():
    assert uniform_ratio(lambda ratio: ratio**2, 0.36) == pytest.approx(0.6, abs=0.01)


def test_a_target_between_two_steps_ends_the_search():
    ratio = uniform_ratio(lambda ratio: float(ratio > 0.3), 0.5)
    assert ratio == pytest.approx(0.3, abs=1e-4)


def test_all_parameters_cost_the_same():
    curves = {
        "a": sensitivity(lambda ratio: 0.5 * ratio**2),
        "b": sensitivity(lambda ratio: 0.3 * ratio**3),
        "c": sensitivity(lambda ratio: 0.8 * ratio),
    }
    ratios = ratios_by_sensitivity(curves, lambda ratios: sum(ratios.values()) / 3, 0.2)
    cost = 0.5 * ratios["a"] ** 2
    assert 0.3 * ratios["b"] ** 3 == pytest.approx(cost, rel=1e-3)
    assert 0.8 * ratios["c"] == pytest.approx(cost, rel=1e-3)
    assert sum(ratios.values()) / 3 == pytest.approx(0.2, abs=0.01)


def test_pruning_that_costs_nothing_goes_as_far_as_it_was_tried():
    curves = {"free": sensitivity(lambda ratio: -ratio), "dear": sensitivity(lambda ratio: 10 * ratio)}
    ratios = ratios_by_sensitivity(curves, lambda ratios: ratios["free"], 0.75)
    assert ratios["free"] == 0.75
