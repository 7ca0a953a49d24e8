"""Kernels agree with the loops of `refluid.ops.sequence.recurrence`, however their work is shared."""

from __future__ import annotations

import sys
import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from refluid import kernels
from refluid.kernels import lanes
from refluid.ops.core import registry
from refluid.ops.core.values import Ragged

LENGTHS = ([3, 1, 0, 7, 2, 2, 19], [0, 0], [5] * 13, [80, 1])


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def noise(*shape, seed=0):
    return jnp.asarray(np.random.RandomState(seed).randn(*shape) * 0.7, "float32")


def sequences(lengths, columns, room):
    offsets = jnp.cumsum(jnp.array([0, *lengths]))
    return Ragged(noise(sum(lengths) + room, columns), (offsets,), 80)


def lstm_inputs(lengths, size, room, peepholes, initial):
    states = [noise(len(lengths), size, seed=i) for i in (2, 3)] if initial else [None, None]
    bias = noise(1, 7 * size if peepholes else 4 * size, seed=4)
    return sequences(lengths, 4 * size, room), *states, noise(size, 4 * size, seed=1), bias


def gru_inputs(lengths, size, room, initial):
    state = noise(len(lengths), size, seed=2) if initial else None
    return sequences(lengths, 3 * size, room), state, noise(size, 3 * size, seed=1), noise(1, 3 * size, seed=4)


def with_gradients(rule, inputs, use_kernels):
    """Hidden states and the gradients of all inputs, from a compiled function."""
    ragged = inputs[0]

    def loss(data, *rest):
        hidden = [x.data for x in rule(ragged.with_data(data), *rest) if x.levels]  # what nobody reads has none
        weights = noise(*hidden[0].shape, seed=9)
        return (jnp.where(ragged.real()[:, None], hidden[0], 0) * weights).sum(), hidden

    arguments = [ragged.data, *inputs[1:]]
    wanted = tuple(i for i, x in enumerate(arguments) if x is not None)
    with kernels.allowed(use_kernels):
        (_, hidden), gradients = jax.jit(jax.value_and_grad(loss, wanted, has_aux=True))(*arguments)
    return hidden, gradients


def assert_same(lengths, got, expected):
    rows = sum(lengths)
    for a, b in zip(got[0], expected[0], strict=True):
        np.testing.assert_allclose(a[:rows], b[:rows], rtol=1e-5, atol=2e-6)
        assert np.isfinite(a).all()  # padding included
    for a, b in zip(got[1], expected[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_lstm(lengths, peepholes, is_reverse):
    rule = partial(registry.lookup("lstm").rule, use_peepholes=peepholes, is_reverse=is_reverse)
    inputs = lstm_inputs(lengths, 6, 5, peepholes, initial=True)
    assert_same(lengths, with_gradients(rule, inputs, True), with_gradients(rule, inputs, False))


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("origin_mode", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_gru(lengths, origin_mode, is_reverse):
    rule = partial(registry.lookup("gru").rule, origin_mode=origin_mode, is_reverse=is_reverse)
    inputs = gru_inputs(lengths, 6, 5, initial=True)
    assert_same(lengths, with_gradients(rule, inputs, True), with_gradients(rule, inputs, False))


@pytest.mark.parametrize("size", [1, 4, 33])
def test_sizes_that_are_no_multiple_of_what_is_computed_at_once(size):
    lengths = [6, 2, 9]
    for rule, inputs in (
        (partial(registry.lookup("lstm").rule, use_peepholes=False), lstm_inputs(lengths, size, 0, False, False)),
        (registry.lookup("gru").rule, gru_inputs(lengths, size, 0, False)),
    ):
        assert_same(lengths, with_gradients(rule, inputs, True), with_gradients(rule, inputs, False))


def test_the_result_does_not_depend_on_how_work_is_shared(monkeypatch):
    lengths = LENGTHS[0] * 3
    results = []
    for parts in (1, 2, 5):
        monkeypatch.setattr(lanes.Lanes, "parts", lambda self, work, parts=parts: parts)
        of_lstm = with_gradients(registry.lookup("lstm").rule, lstm_inputs(lengths, 16, 3, True, True), True)
        of_gru = with_gradients(registry.lookup("gru").rule, gru_inputs(lengths, 16, 3, True), True)
        results.append((of_lstm, of_gru))
    for result in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, result, results[0])


def test_not_a_number_is_not_lost():
    ragged, h0, c0, weight, bias = lstm_inputs([3, 2], 4, 0, False, initial=False)
    data = ragged.data.at[1].set(jnp.nan)
    with kernels.allowed():
        hidden = jax.jit(partial(registry.lookup("lstm").rule, use_peepholes=False))(
            ragged.with_data(data), h0, c0, weight, bias
        )[0].data
    assert np.isnan(hidden[1:3]).all()
    assert np.isfinite(hidden[0]).all()
    assert np.isfinite(hidden[3:]).all()


def test_infinite_cells_stay_infinite_without_peepholes():
    ragged, h0, c0, weight, bias = lstm_inputs([3, 2], 4, 0, False, initial=True)
    run = partial(registry.lookup("lstm").rule, use_peepholes=False)
    with kernels.allowed():
        got = jax.jit(run)(ragged, h0, c0.at[0, 1].set(jnp.inf), weight, bias)
    assert not any(np.isnan(x.data).any() for x in got[:2])


def test_many_threads_at_once():
    inputs = lstm_inputs([9, 4, 7, 7, 1, 3, 8, 2] * 4, 64, 0, True, initial=True)
    with kernels.allowed():
        run = jax.jit(registry.lookup("lstm").rule)
        expected = np.asarray(run(*inputs)[0].data)
    wrong = []

    def repeat():
        with jax.enable_x64(True):
            for _ in range(50):
                if not np.array_equal(run(*inputs)[0].data, expected):
                    wrong.append(1)

    threads = [threading.Thread(target=repeat) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.fixture
def no_kernels(monkeypatch):
    monkeypatch.setitem(sys.modules, "refluid.kernels.lstm", None)
    kernels._load.cache_clear()
    yield
    kernels._load.cache_clear()


def test_without_kernels_there_is_a_warning_and_the_same_result(no_kernels):
    inputs = lstm_inputs([3, 2], 4, 0, True, initial=False)
    expected = with_gradients(registry.lookup("lstm").rule, inputs, False)
    with pytest.warns(UserWarning, match="lstm runs more slowly"):
        got = with_gradients(registry.lookup("lstm").rule, inputs, True)
    jax.tree.map(np.testing.assert_array_equal, got, expected)


@pytest.mark.parametrize("offsets", [[0, 3, 5_000_000], [0, -7, 2], [0, 9, 4]])
@pytest.mark.parametrize("is_reverse", [False, True])
def test_offsets_that_make_no_sense_do_not_lead_out_of_memory(offsets, is_reverse):
    ragged, h0, c0, weight, bias = lstm_inputs([3, 7], 4, 0, True, initial=True)
    ragged = Ragged(ragged.data, (jnp.array(offsets),), 80)
    for rule, given in (("lstm", (h0, c0, weight, bias)), ("gru", (h0, weight[:, :12], bias[:, :12]))):
        rows = ragged if rule == "lstm" else ragged.with_data(ragged.data[:, :12])
        rule = partial(registry.lookup(rule).rule, is_reverse=is_reverse)
        hidden, _ = with_gradients(rule, (rows, *given), True)
        assert hidden[0].shape == (10, 4)


def test_other_dtypes_take_the_loop_of_xla():
    ragged, h0, c0, weight, bias = lstm_inputs([3, 2], 4, 0, True, initial=True)
    inputs = (ragged, h0.astype("float64"), c0.astype("float64"), weight, bias)
    with kernels.allowed():
        got = jax.jit(registry.lookup("lstm").rule)(*inputs)[0].data
    np.testing.assert_array_equal(got, jax.jit(registry.lookup("lstm").rule)(*inputs)[0].data)


def test_shapes_that_do_not_fit_are_refused():
    ragged, h0, c0, weight, bias = lstm_inputs([3, 2], 4, 0, True, initial=True)
    lstm, gru = registry.lookup("lstm").rule, registry.lookup("gru").rule
    with kernels.allowed():
        with pytest.raises(ValueError, match="4 times as many columns"):
            lstm(ragged, h0, c0, weight[:, :12], bias)
        with pytest.raises(ValueError, match="a row per sequence"):
            lstm(ragged, h0[:, :2], c0, weight, bias)
        with pytest.raises(ValueError, match="3 times as many columns"):
            gru(ragged, h0, weight[:, :12])
