"""Optimizers with SelectedRows gradients touch the gradient's rows only, in place, and agree with dense gradients."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from refluid.ops.core.registry import lookup
from refluid.ops.core.values import SelectedRows

RATE = jnp.array([0.1], jnp.float32)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def gradient(height: int, rows) -> SelectedRows:
    values = np.random.RandomState(1).uniform(-1, 1, (len(rows), 4)).astype("float32")
    return SelectedRows(jnp.asarray(rows, jnp.int64), jnp.asarray(values), height)


def inputs(op: str, height: int, grad) -> dict:
    table = jnp.asarray(np.random.RandomState(2).uniform(0.1, 1, (height, 4)).astype("float32"))
    given = {slot.name: [table + i] for i, slot in enumerate(lookup(op).inputs) if not slot.name.endswith("Tensor")}
    given["Param"], given["Grad"], given["LearningRate"] = [table], [grad], [RATE]
    given.update({slot: [RATE + 0.1] for slot in ("Beta1Pow", "Beta2Pow") if slot in given})
    return given


ATTRS = {"lamb": {"weight_decay": 0.1}, "rmsprop": {"epsilon": 0.1}}


@pytest.mark.parametrize("op", ["sgd", "momentum", "adagrad", "adam", "rmsprop", "lamb"])
def test_rows_and_their_dense_form_give_the_same_update(op):
    sparse = gradient(9, [3, 0, 3, 8, 3])
    definition, attrs = lookup(op), ATTRS.get(op, {})
    by_rows = definition.call(inputs(op, 9, sparse), attrs)
    by_table = definition.call(inputs(op, 9, sparse.to_dense()), attrs)
    for slot, (value,) in by_table.items():
        np.testing.assert_allclose(by_rows[slot][0], value, rtol=1e-5, err_msg=slot)


@pytest.mark.parametrize(("op", "attrs"), [("sgd", {}), ("adagrad", {}), ("adam", {"lazy_mode": True})])
def test_other_rows_stay_as_they_are(op, attrs):
    given = inputs(op, 9, gradient(9, [3, 0, 3]))
    param = lookup(op).call(given, attrs)["ParamOut"][0]
    changed = np.any(np.asarray(param) != np.asarray(given["Param"][0]), axis=1)
    assert list(np.flatnonzero(changed)) == [0, 3]


@pytest.mark.parametrize("op", ["sgd", "momentum", "adagrad", "adam", "rmsprop"])
def test_a_row_number_equal_to_the_height_is_no_row(op):
    padded, plain = gradient(9, [3, 0, 9, 9]), gradient(9, [3, 0, 9, 9])
    plain = SelectedRows(plain.rows[:2], plain.values[:2], 9)
    with_padding = lookup(op).call(inputs(op, 9, padded), {})
    without = lookup(op).call(inputs(op, 9, plain), {})
    for slot, (value,) in without.items():
        np.testing.assert_allclose(with_padding[slot][0], value, rtol=1e-6, err_msg=slot)


@pytest.mark.parametrize("op", ["adamax", "decayed_adagrad", "adadelta", "ftrl"])
def test_an_op_that_moves_all_rows_takes_rows_as_a_dense_gradient(op):
    rows = gradient(9, [3, 0, 3])
    sparse, dense = (lookup(op).call(inputs(op, 9, grad), {}) for grad in (rows, rows.to_dense()))
    for slot, (value,) in dense.items():
        np.testing.assert_array_equal(sparse[slot][0], value, err_msg=slot)


@pytest.mark.parametrize("op", ["lars_momentum", "proximal_gd"])
def test_optimizers_without_a_rule_for_rows_say_so(op):
    with pytest.raises(TypeError, match=r"takes no sparse gradient.*is_sparse=False"):
        lookup(op).call(inputs(op, 9, gradient(9, [3, 0])), {})


def test_merging_keeps_each_row_once_with_its_sum():
    merged = gradient(9, [3, 0, 9, 3]).merged()
    assert list(np.asarray(merged.rows)) == [0, 3, 9, 9]
    values = np.asarray(gradient(9, [3, 0, 9, 3]).values)
    np.testing.assert_allclose(merged.values[:2], [values[1], values[0] + values[3]], rtol=1e-6)


@pytest.mark.parametrize(("op", "attrs"), [("sgd", {}), ("adagrad", {}), ("adam", {"lazy_mode": True})])
def test_the_time_of_a_step_does_not_follow_the_height_of_the_table(op, attrs):
    """A hundred times the rows would take a hundred times as long if the table were copied or scanned."""
    small, large = (step_time(op, attrs, height) for height in (20_000, 2_000_000))
    assert large < 20 * small


def step_time(op: str, attrs: dict, height: int) -> float:
    """The shortest of some donated steps with 64 rows."""
    definition = lookup(op)
    grad = gradient(height, np.random.RandomState(0).randint(0, height, 64))
    given = inputs(op, height, grad)
    state = {slot: value[0] for slot, value in given.items() if slot + "Out" in definition.output_names}
    rest = {slot: value for slot, value in given.items() if slot not in state}

    @jax.jit(donate_argnums=0)
    def step(state, rest):
        outputs = definition.call({**rest, **{slot: [value] for slot, value in state.items()}}, attrs)
        return {slot: outputs[slot + "Out"][0] for slot in state}

    times = []
    for _ in range(20):
        start = time.perf_counter()
        state = jax.block_until_ready(step(state, rest))
        times.append(time.perf_counter() - start)
    return min(times)
