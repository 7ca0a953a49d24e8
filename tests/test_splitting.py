"""Feeds of replicas in several processes: what must have the same size everywhere."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.jobs import exchanges_rows
from refluid.lowering.buckets import Buckets
from refluid.meshes import mesh_target
from refluid.splitting import read_feeds
from refluid.transpiler.data_parallel import ReduceGradients


def lookups(is_sparse):
    """A program whose two local replicas sum their gradients with those of other processes."""
    ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
    y = fluid.layers.data("y", [1])
    pooled = fluid.layers.sequence_pool(fluid.layers.embedding(ids, [10, 2], is_sparse=is_sparse), "sum")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(pooled, 1), y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return ReduceGradients(4, loss.name).apply(fluid.default_main_program())


def read(program, others, lengths, exact=False):
    """What the step is fed where the sizes of other processes are at least ``others``."""
    asked = []

    def largest(what, sizes):
        asked.append((what, list(sizes)))
        return [max(pair) for pair in zip(sizes, others[what], strict=True)]

    target = replace(mesh_target(jax.devices("cpu")[:2]), largest_of_all=largest)
    ids = fluid.create_lod_tensor(np.ones((sum(lengths), 1), "int64"), [lengths], fluid.CPUPlace())
    feed = {"ids": ids, "y": np.ones((len(lengths), 1), "float32")}
    return dict(zip(*read_feeds(program, feed, target, Buckets(), exact), strict=True)), asked


def test_processes_agree_on_sizes_if_they_exchange_rows():
    assert not exchanges_rows(lookups(is_sparse=False))
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        program = lookups(is_sparse=True)
    assert exchanges_rows(program)
    others = {"sequences of ids": [24, 16], "ids, y": [2, 2, -2, -2]}
    values, asked = read(program, others, [1, 2, 3, 4])
    assert [what for what, _ in asked] == ["sequences of ids", "ids, y"]
    assert values["ids"].data.shape == (2 * 24, 1) and values["ids"].longest == 16
    assert values["y"].shape == (4, 1)  # all replicas of all processes have two samples


def test_a_process_with_fewer_samples_than_others_pads_them():
    others = {"sequences of ids": [8, 8], "ids, y": [3, 3, -2, -2]}
    values, _ = read(lookups(is_sparse=True), others, [1, 2, 3, 4])
    y = values["y"]
    assert y.data.shape == (6, 1) and y.hidden == 1
    np.testing.assert_array_equal(y.offsets[0], [0, 2, 0, 2])


def test_what_cannot_be_padded_must_be_even_in_all_processes():
    program = lookups(is_sparse=True)
    even = {"ids, y": [2, 2, 5, 2, -2, -2, -5, -2]}
    values, _ = read(program, even, [1, 4, 2, 3], exact=True)
    assert values["ids"].data.shape == (10, 1)
    with pytest.raises(ValueError, match="different numbers of samples or rows .* drop_last=True"):
        read(program, {"ids, y": [2, 2, 6, 2, -2, -2, -5, -2]}, [1, 4, 2, 3], exact=True)
