"""Sequences on their way through programs: few compilations serve many lengths, and nobody sees the padding."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import PaddingWarning
from refluid.executor import Executor

WORDS, CLASSES = 11, 3


def build():
    """A word embedding under an LSTM under a DynamicRNN: the programs, and the loss."""
    main, startup = fluid.Program(), fluid.Program()
    layers = fluid.layers
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words = layers.data("words", [1], dtype="int64", lod_level=1)
        label = layers.data("label", [1], dtype="int64")
        lower, _ = layers.dynamic_lstm(layers.fc(layers.embedding(words, [WORDS, 4]), 16), 16)
        rnn = layers.DynamicRNN()
        with rnn.block():
            row, before = rnn.step_input(lower), rnn.memory(shape=[4])
            hidden = layers.fc([row, before], 4, act="tanh")
            rnn.update_memory(before, hidden)
            rnn.output(hidden)
        scores = layers.fc(layers.sequence_last_step(rnn()), CLASSES, act="softmax")
        loss = layers.mean(layers.cross_entropy(scores, label))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss


def feed_of(lengths, seed=0):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, WORDS, (sum(lengths), 1)).astype("int64")
    tensor = fluid.create_lod_tensor(words, [list(lengths)], fluid.CPUPlace())
    return {"words": tensor, "label": rng.integers(0, CLASSES, (len(lengths), 1)).astype("int64")}


def test_batches_of_many_lengths_settle_to_few_compilations():
    rng = np.random.default_rng(0)
    main, startup, loss = build()
    executor = Executor()
    compiled_at = []
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        before = executor.compilations
        for step in range(500):
            executor.run(main, feed=feed_of(rng.integers(5, 81, 8).tolist(), step), fetch_list=[loss])
            compiled_at += [step] * (executor.compilations - before - len(compiled_at))
    assert len(compiled_at) <= 8, f"compiled in steps {compiled_at} for\n{executor.buckets}"
    assert sum(step >= 250 for step in compiled_at) < len(compiled_at) / 2, compiled_at


def test_feeds_of_equal_lengths_are_padded_alike_whatever_was_fed_before():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = (fluid.layers.data(name, [1], lod_level=1) for name in "xy")
        total = fluid.layers.reduce_sum(x * y)
        alone = fluid.layers.reduce_sum(x)
        test = main.clone()
    executor = Executor()

    def sequence(count):
        return fluid.create_lod_tensor(np.ones((count, 1), "float32"), [[count]], fluid.CPUPlace())

    for count in (11, 14, 17, 20):
        executor.run(test, feed={"x": sequence(count), "y": sequence(count)}, fetch_list=[alone.name])
        (result,) = executor.run(main, feed={"x": sequence(count), "y": sequence(count)}, fetch_list=[total])
        assert result.item() == count
    assert not executor._exact


def test_an_op_that_mixes_rows_runs_without_padding_and_warns():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [2], lod_level=1)
        shape = fluid.layers.shape(x)
    tensor = fluid.create_lod_tensor(np.ones((5, 2), "float32"), [[2, 3]], fluid.CPUPlace())
    with pytest.warns(PaddingWarning, match="shape mixes rows"):
        (found,) = Executor().run(main, feed={"x": tensor}, fetch_list=[shape])
    assert found.tolist() == [5, 2]


def test_a_static_rnn_sees_sequences_from_outside_and_keeps_them_padded():
    x, steps = fluid.layers.data("x", [2], lod_level=1), fluid.layers.data("steps", [1])
    first = fluid.layers.sequence_pool(x, "sum")
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        step, before = rnn.step_input(steps), rnn.memory(init=first)
        after = fluid.layers.sequence_pool(x * step, "sum") + before
        rnn.update_memory(before, after)
        rnn.step_output(after)
    last = rnn()
    executor = Executor()
    for lengths in ([2, 3], [1, 6], [4, 0]):
        tensor = fluid.create_lod_tensor(np.ones((sum(lengths), 2), "float32"), [lengths], fluid.CPUPlace())
        (found,) = executor.run(feed={"x": tensor, "steps": np.float32([[2], [3]])}, fetch_list=[last])
        assert found[:, :, 0].tolist() == [[3.0 * count for count in lengths], [6.0 * count for count in lengths]]
    assert executor.compilations == 1


def test_a_static_rnn_that_gives_out_rows_of_sequences_runs_without_padding_and_warns():
    x, steps = fluid.layers.data("x", [2], lod_level=1), fluid.layers.data("steps", [1])
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        rnn.step_output(x * rnn.step_input(steps))
    tensor = fluid.create_lod_tensor(np.ones((5, 2), "float32"), [[2, 3]], fluid.CPUPlace())
    with pytest.warns(PaddingWarning, match="recurrent mixes rows"):
        (found,) = Executor().run(feed={"x": tensor, "steps": np.float32([[2], [3]])}, fetch_list=[rnn()])
    assert found.tolist() == [[[2, 2]] * 5, [[3, 3]] * 5]


def test_rows_without_lod_are_fetched_without_padding():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [2], lod_level=1)
        best = fluid.layers.argmax(x, axis=1)
    tensor = fluid.create_lod_tensor(np.float32([[1, 2], [3, 1], [0, 1]]), [[1, 2]], fluid.CPUPlace())
    (found,) = Executor().run(main, feed={"x": tensor}, fetch_list=[best])
    assert found.tolist() == [1, 0, 1]


def test_host_ops_see_real_rows_only():
    main, startup = fluid.Program(), fluid.Program()
    seen = []
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [1], lod_level=1)
        out = main.global_block().create_var(name="out", dtype="float32", shape=[-1, 1])

        def double(rows):
            seen.append(np.array(rows).shape)
            return np.array(rows) * 2

        fluid.layers.py_func(double, fluid.layers.scale(x, 3.0), out)
        total = fluid.layers.reduce_sum(out)
    tensor = fluid.create_lod_tensor(np.ones((5, 1), "float32"), [[2, 3]], fluid.CPUPlace())
    (found,) = Executor().run(main, feed={"x": tensor}, fetch_list=[total])
    assert seen == [(5, 1)]
    assert found.item() == 30


def test_fetched_sequences_keep_their_lod():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [2], lod_level=2)
        y = fluid.layers.scale(x, 2.0)
    lengths = [[2, 1], [3, 1, 4]]
    tensor = fluid.create_lod_tensor(np.ones((8, 2), "float32"), lengths, fluid.CPUPlace())
    (found,) = Executor().run(main, feed={"x": tensor}, fetch_list=[y], return_numpy=False)
    assert found.recursive_sequence_lengths() == lengths
    assert np.array(found).shape == (8, 2)


@pytest.mark.parametrize("seed", ["ones", "sequences", "rows"])
def test_gradients_of_sequences_start_from_real_rows_only(seed):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [2], lod_level=1)
        weight = fluid.layers.data("weight", [2], append_batch_size=False)
        given = fluid.layers.data("given", [2], lod_level=int(seed == "sequences"))
        weight.stop_gradient = False
        y = fluid.layers.elementwise_mul(x, weight, axis=1)
        (gradient,) = fluid.gradients([y], [weight], None if seed == "ones" else [given])
    tensor = fluid.create_lod_tensor(np.ones((5, 2), "float32"), [[2, 3]], fluid.CPUPlace())
    feed = {"x": tensor, "weight": np.ones(2, "float32")}
    if seed != "ones":
        feed["given"] = tensor if seed == "sequences" else np.ones((5, 2), "float32")
    (found,) = Executor().run(main, feed=feed, fetch_list=[gradient])
    assert found.tolist() == [5, 5]
