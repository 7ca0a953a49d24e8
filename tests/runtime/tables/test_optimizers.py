"""Rows are updated as the ops of the same optimizers update whole parameters, whichever rows a step touches."""

import jax
import numpy as np
import pytest

import refluid.ops  # noqa: F401 - registers the ops
from refluid.ops.core.registry import lookup
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import OPTIMIZERS, Rule
from refluid.runtime.tables.table import Table

HEIGHT, WIDTH, STEPS = 40, 5, 60

CASES = {
    "sgd": {},
    "momentum": {"mu": 0.9},
    "momentum nesterov": {"mu": 0.8, "use_nesterov": True},
    "adagrad": {"epsilon": 1e-6},
    "decayed_adagrad": {"decay": 0.9, "epsilon": 1e-6},
    "adadelta": {"rho": 0.9, "epsilon": 1e-5},
    "adam": {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8},
    "adamax": {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8},
    "rmsprop": {"decay": 0.9, "momentum": 0.7, "epsilon": 1e-6},
    "rmsprop centered": {"decay": 0.9, "momentum": 0.5, "epsilon": 1e-3, "centered": True},
    "ftrl": {"l1": 0.01, "l2": 0.02, "lr_power": -0.5},
}


def dense_steps(type, attrs, param, grads, rates, l2, l1):
    """The parameter after every step of the op, with gradients for all rows."""
    definition = lookup(type)
    states = {slot: np.zeros_like(param) for slot in OPTIMIZERS[type].states}
    betas = {"Beta1Pow": "beta1", "Beta2Pow": "beta2"}
    powers = {name: np.full(1, attrs[beta], param.dtype) for name, beta in betas.items() if beta in attrs}
    for grad, rate in zip(grads, rates, strict=True):
        total = grad + l2 * param + l1 * np.sign(param)
        given = {"Param": [param], "Grad": [total], "LearningRate": [np.full(1, rate, param.dtype)]}
        given |= {slot: [value] for slot, value in states.items()} | {slot: [value] for slot, value in powers.items()}
        found = definition.call({slot: given[slot] for slot in definition.input_names if slot in given}, attrs)
        found = {slot: np.asarray(value[0]) for slot, value in found.items()}
        param = found["ParamOut"]
        outs = {"SquaredAccumulator": "SquaredAccumOut", "LinearAccumulator": "LinearAccumOut"}
        states = {slot: found.get(outs.get(slot, f"{slot}Out"), states[slot]) for slot in states}
        powers = {slot: value * np.float32(attrs[f"beta{slot[4]}"]) for slot, value in powers.items()}
        yield param


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def touched(random):
    """Some ids, different from each other and in no order; row 0 seldom, row 1 never."""
    ids = random.permutation(np.arange(2, HEIGHT))[: random.randint(1, 8)]
    return np.append(ids, 0) if random.rand() < 0.1 else ids


@pytest.mark.parametrize("decay", [(0.0, 0.0), (0.05, 0.01)], ids=["plain", "decayed"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_rows_follow_a_parameter_that_is_updated_whole(case, dtype, decay):
    type, attrs, random = case.split()[0], CASES[case], np.random.RandomState(0)
    table = Table("emb", RecordForm(WIDTH, np.dtype(dtype), OPTIMIZERS[type].states), Rule(type, attrs, *decay))
    start = random.randn(HEIGHT, WIDTH).astype(dtype)
    put_weights(table, np.arange(HEIGHT), start)
    chosen = [touched(random) for _ in range(STEPS)]
    rates = [np.float32(0.1 * 0.97**step) for step in range(STEPS)]
    grads = np.zeros((STEPS, HEIGHT, WIDTH), dtype)
    for grad, ids in zip(grads, chosen, strict=True):
        grad[ids] = random.randn(len(ids), WIDTH)
    tolerance = {"atol": 1e-5, "rtol": 1e-5} if dtype == "float32" else {"atol": 1e-6, "rtol": 1e-6}
    steps = dense_steps(type, attrs, start, grads, rates, *decay)
    for number, (param, ids) in enumerate(zip(steps, chosen, strict=True)):
        table.update(ids, np.ascontiguousarray(grads[number][ids]), table.begin_step(rates[number]))
        np.testing.assert_allclose(table.read(ids), param[ids], **tolerance)
        if number % 20 == 19:
            np.testing.assert_allclose(table.read(np.arange(HEIGHT)), param, **tolerance)


def put_weights(table, ids, weights):
    """Sets the weights of rows that begin otherwise."""
    form = table.form
    records = np.zeros((len(ids), form.words), np.uint32)
    records[:, :2] = ids.astype(np.int64).view(np.uint32).reshape(-1, 2)
    elements = weights.dtype.itemsize // 4
    records[:, form.header : form.header + form.width * elements] = weights.view(np.uint32)
    table.put(ids, records)


def test_lazy_adam_leaves_other_rows_alone():
    rule = Rule("adam", {"beta1": 0.9, "beta2": 0.999, "lazy_mode": True})
    table = Table("emb", RecordForm(3, slots=("Moment1", "Moment2")), rule)
    ones = np.ones((1, 3), np.float32)
    table.update(np.array([1]), ones, table.begin_step(0.1))
    after = table.read(np.array([1]))
    for _ in range(5):
        table.update(np.array([2]), ones, table.begin_step(0.1))
    np.testing.assert_array_equal(table.read(np.array([1])), after)


def test_gradients_are_scaled_and_cut():
    table = Table("emb", RecordForm(2), Rule("sgd", {}, scale=0.5, lowest=-1.0, highest=1.0))
    table.update(np.array([5]), np.array([[1.0, -40.0]], np.float32), table.begin_step(1.0), scale=0.5)
    np.testing.assert_array_equal(table.read(np.array([5])), [[-0.25, 1.0]])


def test_changes_are_added():
    table = Table("emb", RecordForm(2), Rule("add", {}))
    for _ in range(2):
        table.update(np.array([5]), np.array([[1.0, 2.0]], np.float32), table.begin_step(0.0))
    np.testing.assert_array_equal(table.read(np.array([5])), [[2.0, 4.0]])
