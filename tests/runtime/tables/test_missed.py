"""A row makes up for the steps it has missed, however many, as if it had taken each of them."""

import numpy as np
import pytest

from refluid.runtime.tables.history import History
from refluid.runtime.tables.kernels.missed import LARGE, MOST_MISSED
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import OPTIMIZERS, Beginning, Rule
from refluid.runtime.tables.table import Table

RULES = {
    "sgd, l2": Rule("sgd", {}, l2=1e-4),
    "momentum": Rule("momentum", {"mu": 0.9}),
    "momentum, l2": Rule("momentum", {"mu": 0.9}, l2=1e-4),
    "nesterov, l2": Rule("momentum", {"mu": 0.8, "use_nesterov": True}, l2=1e-4),
}
ONE = np.array([5])


def table_of(rule):
    form = RecordForm(2, np.dtype("float64"), OPTIMIZERS[rule.optimizer].states)
    return Table("emb", form, rule, Beginning(0, 1.0, double=True))


def take(table, steps, rate):
    """Steps with one learning rate: those between count as having that of the last."""
    table.step += steps - 1
    table.begin_step(rate)


@pytest.mark.parametrize("case", RULES)
def test_very_many_steps_are_those_of_a_row_that_takes_each(case):
    seldom, often, new = table_of(RULES[case]), table_of(RULES[case]), np.array([6])
    for table in (seldom, often):
        table.update(ONE, np.ones((1, 2)), table.begin_step(0.1))
    often.read(new)
    for part in range(120):
        for table in (seldom, often):
            take(table, 500 + part % 7, 0.1 * 0.99**part)
        often.read(np.append(ONE, new))
    np.testing.assert_allclose(seldom.read(ONE), often.read(ONE), rtol=1e-9, atol=1e-12)
    for _ in range(LARGE // 1000):
        for table in (seldom, often):
            take(table, 1000, 0.02)
        often.read(new)
    np.testing.assert_allclose(seldom.read(new, creates=False), often.read(new), rtol=1e-9)
    assert seldom.read(new)[0, 0] < 0.8 or case == "momentum"


def test_learning_rates_too_long_ago_are_known_as_means():
    table, expected = table_of(RULES["sgd, l2"]), 1.0
    for rate in (0.1, 0.2, 0.4):
        take(table, 1, rate)
        expected *= 1 - 1e-4 * rate
    table.update(ONE, np.zeros((1, 2)), 3)
    for rate in np.linspace(0.4, 0.1, 100).tolist():
        take(table, 2000, rate)
        expected *= (1 - 1e-4 * rate) ** 2000
    np.testing.assert_allclose(table.read(ONE), [[expected, expected]], rtol=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "adagrad"])
def test_decay_without_a_closed_form_is_made_up_for_a_bounded_number_of_steps(optimizer):
    rule = Rule(optimizer, {}, l2=0.01)
    seldom, often = table_of(rule), table_of(rule)
    for number in range(1, MOST_MISSED + 1):
        for table in (seldom, often):
            table.begin_step(0.001)
        if number % 50 == 0:
            often.read(ONE)
    np.testing.assert_allclose(seldom.read(ONE, creates=False), often.read(ONE), rtol=1e-12)
    for _ in range(1000):
        seldom.begin_step(0.001)
    late = seldom.read(ONE, creates=False)
    assert np.isfinite(late).all() and (late < 1).all()


def test_after_a_restart_unknown_steps_count_as_having_the_next_learning_rate():
    table = table_of(RULES["sgd, l2"])
    table.step = 100_000
    table.begin_step(0.1)
    np.testing.assert_allclose(table.read(ONE, creates=False), (1 - 1e-5) ** 100_001, rtol=1e-6)


def test_history_grows_by_blocks():
    history = History(RULES["sgd, l2"].numbers())
    for number in range(1, 5000):
        history.record(number, 0.1)
    assert 5000 // 256 < len(history.blocks) < 100


@pytest.mark.parametrize("steps", [0, 3, LARGE + 700])
def test_what_is_known_of_steps_survives_files(steps):
    rule = RULES["momentum, l2"].numbers()
    history, copy = History(rule), History(rule)
    for part in range(3):
        if steps:
            history.record(steps // 3 * (part + 1), 0.1 / (part + 1))
    numbers = history.numbers()
    copy.read(numbers)
    for each in (history, copy):
        each.record(steps + 5, 0.3)
    for name in ("rates", "blocks", "large"):
        ours, theirs = getattr(history, name), getattr(copy, name)
        np.testing.assert_array_equal(ours[: len(theirs)], theirs[: len(ours)])
    for bad in (numbers[:-1], numbers[:2], np.append(numbers, 1.0), -numbers - 1):
        with pytest.raises(ValueError, match="do not tell the learning rates"):
            copy.read(bad)
