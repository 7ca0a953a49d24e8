"""Recurrences over packed and dense sequences agree with loops written out, and take no notice of padding."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from refluid.ops.core import registry
from refluid.ops.core.values import Ragged
from refluid.ops.sequence.recurrence import BatchOrder, recur

SIZE = 3


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def noise(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape)


def packed(lengths, width, room=0):
    offsets = jnp.cumsum(jnp.array([0, *lengths]), dtype="int32")
    return Ragged(noise(sum(lengths) + room, width), (offsets,), 8 * -(-max(lengths) // 8))


def cell(dot, shared, state):
    """A cell with two products, a shared vector and two states."""
    first, second = state
    mixed = jnp.tanh(dot(0, first) + shared * second)
    return jnp.tanh(dot(1, mixed)), mixed * second + 0.5


def padded_scan(sequences, weights, shared, initial, is_reverse):
    """The same cell over padded sequences; where one has ended, its state waits."""
    places = jnp.arange(sequences.longest)
    order = jnp.where(places < sequences.lengths[:, None], sequences.lengths[:, None] - 1 - places, places)
    rows = sequences.to_padded()
    rows = jnp.take_along_axis(rows, order[:, :, None], axis=1) if is_reverse else rows

    def step(state, at):
        rows, running = at
        new = cell(lambda i, x: (rows, 0)[i] + x @ weights[i], shared, state)
        state = tuple(jnp.where(running[:, None], a, b) for a, b in zip(new, state, strict=True))
        return state, state

    running = places[:, None] < sequences.lengths
    _, states = jax.lax.scan(step, initial, (rows.swapaxes(0, 1), running))
    states = [x.swapaxes(0, 1) for x in states]
    states = [jnp.take_along_axis(x, order[:, :, None], axis=1) if is_reverse else x for x in states]
    return [sequences.from_padded(x).data for x in states]


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("lengths", [[6], [2, 0, 3, 0], [2, 1, 4, 1, 3, 1, 2, 1, 1, 5] * 2])
def test_packed_sequences_give_what_a_padded_scan_gives(lengths, is_reverse):
    sequences = packed(lengths, SIZE, room=4)
    rows = sum(lengths)
    weights = (noise(SIZE, SIZE, seed=1), noise(SIZE, SIZE, seed=2))
    shared = noise(SIZE, seed=3)
    initial = (noise(len(lengths), SIZE, seed=4), noise(len(lengths), SIZE, seed=5))
    weighting = (noise(rows, SIZE, seed=6), noise(rows, SIZE, seed=7))

    def total(function):
        def run(data, weights, shared, initial):
            states = function(sequences.with_data(data), weights, shared, initial)
            return sum(jnp.sum(x[:rows] * w) for x, w in zip(states, weighting, strict=True))

        return jax.jit(jax.value_and_grad(run, argnums=(0, 1, 2, 3)))

    def of_recur(sequences, weights, shared, initial):
        return recur(cell, BatchOrder.of(sequences, is_reverse), (sequences.data, None), weights, shared, initial)

    arguments = (sequences.data, weights, shared, initial)
    expected = total(partial(padded_scan, is_reverse=is_reverse))(*arguments)
    actual = total(of_recur)(*arguments)
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-9, atol=1e-12), actual, expected)


def test_rows_of_padding_get_no_gradient_and_give_none():
    sequences = packed([2, 3], 4 * SIZE, room=5)
    weights = {"Weight": [noise(SIZE, 4 * SIZE)], "Bias": [noise(1, 7 * SIZE)]}

    def total(data, factor):
        hidden = registry.lookup("lstm").call({"Input": [sequences.with_data(data)], **weights}, {})["Hidden"][0]
        return jnp.sum(hidden.data * jnp.where(hidden.real(), 1.0, factor)[:, None])

    gradient = jax.jit(jax.grad(total))
    np.testing.assert_array_equal(gradient(sequences.data, 0.0)[5:], 0)
    np.testing.assert_array_equal(gradient(sequences.data, 0.0), gradient(sequences.data, 100.0))


def test_plain_rows_are_refused():
    with pytest.raises(ValueError, match="Input must hold sequences"):
        registry.lookup("lstm").call({"Input": [noise(4, 12)], "Weight": [noise(3, 12)], "Bias": [noise(1, 21)]}, {})


def sigmoid(x):
    return 1 / (1 + jnp.exp(-x))


def stacked_lstm(x, h0, c0, weight, size, layers, directions):
    """cudnn_lstm, written from cuDNN's layout of its weights."""
    at, matrices = 0, []
    for layer in range(layers):
        columns = x.shape[2] if layer == 0 else size * directions
        for _ in range(directions):
            of_input = weight[at : at + 4 * size * columns].reshape(4 * size, columns)
            at += of_input.size
            matrices.append((of_input, weight[at : at + 4 * size * size].reshape(4 * size, size)))
            at += 4 * size * size
    last_h, last_c = [], []
    for layer in range(layers):
        halves = []
        for direction in range(directions):
            number = layer * directions + direction
            start = at + 8 * size * number
            bias = weight[start : start + 4 * size] + weight[start + 4 * size : start + 8 * size]

            def step(state, row, matrices=matrices[number], bias=bias):
                h, c = state
                into, forget, new, out = jnp.split(row @ matrices[0].T + h @ matrices[1].T + bias, 4, axis=1)
                c = sigmoid(forget) * c + sigmoid(into) * jnp.tanh(new)
                h = sigmoid(out) * jnp.tanh(c)
                return (h, c), h

            (h, c), found = jax.lax.scan(step, (h0[number], c0[number]), x, reverse=bool(direction))
            halves.append(found)
            last_h.append(h)
            last_c.append(c)
        x = jnp.concatenate(halves, axis=2)
    return x, jnp.stack(last_h), jnp.stack(last_c)


@pytest.mark.parametrize(("layers", "directions"), [(2, 1), (2, 2)])
def test_cudnn_lstm_reads_its_weights_in_the_order_of_cudnn(layers, directions):
    columns = [4] + [SIZE * directions] * (layers - 1)
    length = sum(4 * SIZE * (width + SIZE + 2) * directions for width in columns)
    x, weight = noise(5, 2, 4), noise(length, seed=1)
    h0, c0 = noise(layers * directions, 2, SIZE, seed=2), noise(layers * directions, 2, SIZE, seed=3)
    attrs = {"hidden_size": SIZE, "num_layers": layers, "is_bidirec": directions == 2}

    def of_op(x, h0, c0, weight):
        inputs = {"Input": [x], "InitH": [h0], "InitC": [c0], "W": [weight]}
        found = registry.lookup("cudnn_lstm").call(inputs, attrs)
        return [found[slot][0] for slot in ("Out", "last_h", "last_c")]

    def of_scan(*arguments):
        return stacked_lstm(*arguments, SIZE, layers, directions)

    def total(function):
        def run(*arguments):
            found = function(*arguments)
            return sum(jnp.sum(jnp.sin(x)) for x in found), found

        return jax.jit(jax.value_and_grad(run, argnums=(0, 1, 2, 3), has_aux=True))

    arguments = (x, h0, c0, weight)
    expected, actual = (jax.tree.leaves(total(function)(*arguments)) for function in (of_scan, of_op))
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-9, atol=1e-12), actual, expected)


def test_cudnn_lstm_drops_values_between_layers_while_training():
    attrs = {"hidden_size": SIZE, "num_layers": 2, "dropout_prob": 0.5}
    inputs = {"Input": [noise(4, 2, 3)], "InitH": [noise(2, 2, SIZE)], "InitC": [noise(2, 2, SIZE)], "W": [noise(192)]}

    def run(mask, **more):
        rule = jax.jit(lambda given: registry.lookup("cudnn_lstm").call(given, {**attrs, **more})["Out"][0])
        return np.asarray(rule({**inputs, "Mask": [np.array([mask], "float32")]}))

    np.testing.assert_array_equal(run(0.25), run(0.25))
    assert np.abs(run(0.25) - run(0.75)).max() > 1e-3
    np.testing.assert_array_equal(run(0.25, is_test=True), run(0.75, is_test=True))
