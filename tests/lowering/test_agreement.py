"""Padded, unpadded and op by op, sequences give the same numbers; and their order in a batch does not matter.

The batches of one test have equal numbers of rows and sequences, so few steps are compiled for many of them.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import paddle.fluid as fluid
from refluid.executor import Executor

ROWS, COUNT, LONGEST, WIDTH = 24, 5, 8, 3
PLACE = fluid.CPUPlace()


@st.composite
def batches(draw):
    """Lengths of COUNT sequences, ROWS in all, and a seed for what is in them."""
    left, lengths = ROWS, []
    for after in reversed(range(COUNT)):
        lengths.append(draw(st.integers(max(0, left - after * LONGEST), min(LONGEST, left))))
        left -= lengths[-1]
    return draw(st.permutations(lengths)), draw(st.integers(0, 1000))


@cache
def model():
    """A program with every kind of sequence op: its results for each sequence, and the gradients of all inputs."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    layers = fluid.layers
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = layers.data("x", [WIDTH], lod_level=1, stop_gradient=False)
        hidden, _ = layers.dynamic_lstm(layers.fc(x, 12), 12)
        backwards = layers.dynamic_gru(layers.fc(x, 6), 2, is_reverse=True)
        conv = layers.sequence_conv(x, WIDTH, 3, act="tanh")
        attention = layers.sequence_softmax(layers.fc(conv, 1, bias_attr=False))
        weighted = layers.elementwise_mul(conv, layers.reshape(attention, [-1]), axis=0)
        mean = layers.sequence_expand_as(layers.sequence_pool(x, "average"), x)
        twice = layers.sequence_concat([layers.sequence_reverse(backwards), backwards])
        padded, length = layers.sequence_pad(x, layers.assign(np.float32([0.5])), maxlen=LONGEST)
        unpadded = layers.sequence_unpad(layers.scale(padded, 2.0), length)
        parts = [
            layers.sequence_last_step(hidden),
            layers.sequence_first_step(twice),
            layers.sequence_pool(twice, "max"),
            layers.sequence_pool(weighted, "sum"),
            layers.sequence_pool(layers.elementwise_mul(mean, x), "sqrt"),
            layers.sequence_pool(layers.sequence_reshape(unpadded, 1), "max", pad_value=0.25),
            layers.reduce_max(padded, dim=1),
        ]
        for_each = layers.concat(parts, axis=1)
        spread = layers.reduce_mean(layers.batch_norm(layers.fc(x, 2), act="tanh"), dim=0)
        loss = layers.mean(layers.square(for_each)) + layers.reduce_sum(spread)
        pairs = fluid.backward.append_backward(loss)
        fetches = [for_each.name, "x@GRAD", loss.name, *(gradient.name for _, gradient in pairs)]
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        Executor().run(startup)
    return main, scope, fetches


@cache
def executors():
    """One that pads, one that does not, one that compiles nothing."""
    exact = Executor()
    exact._exact.add(model()[0])
    return Executor(), exact, Executor(eager=True)


def sequences(lengths, seed):
    rows = np.random.default_rng(seed).uniform(-1, 1, (sum(lengths), WIDTH)).astype("float32")
    return np.split(rows, np.cumsum(lengths)[:-1])


def run(executor, pieces):
    main, scope, fetches = model()
    lengths = [len(piece) for piece in pieces]
    feed = {"x": fluid.create_lod_tensor(np.concatenate(pieces), [lengths], PLACE)}
    # Batch normalisation keeps a mean over batches; a child scope would not, but would be another scope to compile for.
    with fluid.scope_guard(scope):
        found = executor.run(main, feed=feed, fetch_list=fetches, return_numpy=False)
    for value, name in zip(found[:2], fetches, strict=False):
        assert value.shape()[0] == (COUNT if name != "x@GRAD" else ROWS)
    return [np.array(value) for value in found]


def assert_alike(found, expected):
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=2e-6)


@settings(max_examples=15, deadline=None)
@given(batches())
def test_padded_and_exact_runs_agree(batch):
    padded, exact, _ = executors()
    pieces = sequences(*batch)
    assert_alike(run(padded, pieces), run(exact, pieces))


@settings(max_examples=2, deadline=None)  # loops outside a step are compiled every time
@given(batches())
def test_padded_and_eager_runs_agree(batch):
    padded, _, eager = executors()
    pieces = sequences(*batch)
    assert_alike(run(padded, pieces), run(eager, pieces))


@settings(max_examples=15, deadline=None)
@given(batches(), st.permutations(range(COUNT)))
def test_permuted_sequences_give_permuted_results(batch, order):
    pieces = sequences(*batch)
    of_each, gradient, *others = run(executors()[0], pieces)
    moved, moved_gradient, *same = run(executors()[0], [pieces[i] for i in order])
    by_sequence = np.split(gradient, np.cumsum(batch[0])[:-1])
    assert_alike([moved, moved_gradient], [of_each[order], np.concatenate([by_sequence[i] for i in order])])
    assert_alike(same, others)


def test_these_many_batches_took_few_compilations():
    padded, exact, _ = executors()
    run(padded, sequences([8, 8, 8, 0, 0], 0))
    run(exact, sequences([8, 8, 8, 0, 0], 0))
    assert padded.compilations <= 2, "the second is for smaller sizes, when enough batches are known"
    assert exact.compilations == 3, "before, between and after sequence_unpad and its gradient, which run on the host"
    assert str(exact.buckets) == "no sequences were fed", "an exact run pads nothing"
    assert str(padded.buckets).startswith("x: rows 28, longest 8 ")
