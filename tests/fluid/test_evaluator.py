"""The older metrics, which the program itself accumulates."""

from __future__ import annotations

import numpy as np

import paddle.fluid as fluid


def sequences(rows, lengths):
    return fluid.create_lod_tensor(np.array(rows, "int64").reshape(-1, 1), [lengths], fluid.CPUPlace())


def run_once(evaluator, **feed):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    exe.run(feed=feed, fetch_list=evaluator.metrics, return_numpy=False)
    return [float(value[0]) for value in evaluator.eval(exe)]


def ids(*names):
    return [fluid.layers.data(name, [1], dtype="int64", lod_level=1) for name in names]


def test_edit_distance_counts_from_zero_without_reset():
    evaluator = fluid.evaluator.EditDistance(*ids("found", "right"))
    feed = {"found": sequences([1, 2, 3], [2, 1]), "right": sequences([1, 3, 3], [2, 1])}
    assert run_once(evaluator, **feed) == [0.25, 0.5]


def test_the_metrics_of_a_batch_are_its_total_distance_and_its_sequences_with_errors():
    evaluator = fluid.evaluator.EditDistance(*ids("found", "right"))
    feed = {"found": sequences([1, 2, 3], [2, 1]), "right": sequences([1, 3, 3, 3], [2, 2])}
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    distance, errors = exe.run(feed=feed, fetch_list=evaluator.metrics)
    assert (distance.tolist(), errors.tolist()) == ([1.0], [2])


def test_chunks_are_counted_from_zero_without_reset():
    evaluator = fluid.evaluator.ChunkEvaluator(*ids("found", "right"), "IOB", 2)
    feed = {"found": sequences([0, 1, 2], [2, 1]), "right": sequences([0, 1, 0], [2, 1])}
    assert run_once(evaluator, **feed) == [0.5, 0.5, 0.5]
