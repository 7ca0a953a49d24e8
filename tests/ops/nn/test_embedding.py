"""Lookups refuse ids they have no row for; padding ids need none."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OpError, OutOfRangeError


def look_up(ids, **options):
    given = fluid.layers.data("ids", [1], dtype="int64")
    found = fluid.layers.embedding(given, [5, 2], **options)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe.run(feed={"ids": np.array(ids, "int64").reshape(-1, 1)}, fetch_list=[found])[0]


@pytest.mark.parametrize("wrong", [5, -1])
def test_an_id_without_a_row_is_reported(wrong):
    with pytest.raises(OutOfRangeError, match="lookup_table"):
        look_up([0, wrong])


def test_padding_gives_zeros():
    found = look_up([4, 0], padding_idx=-1)
    assert not found[0].any() and found[1].any()


def test_padding_must_be_a_row():
    with pytest.raises(ValueError, match="padding_idx 5 is out of range"):
        look_up([0], padding_idx=5)


def test_ids_without_a_last_dim_of_one_are_told_about_the_other_embedding():
    ids = fluid.layers.data("ids", [3], dtype="int64")
    with pytest.raises(OpError, match=r"fluid\.embedding"):
        fluid.layers.embedding(ids, [5, 2])


def test_float_ids_are_refused():
    with pytest.raises(TypeError, match="input must be int32 or int64, not float32"):
        fluid.layers.embedding(fluid.layers.data("ids", [1]), [5, 2])


@pytest.mark.parametrize("make", [fluid.layers.embedding, fluid.embedding])
def test_a_sparse_table_has_a_gradient_of_selected_rows(make):
    ids = fluid.layers.data("ids", [1], dtype="int64")
    loss = fluid.layers.mean(make(ids, [5, 2], is_sparse=True))
    ((_, gradient),) = fluid.backward.append_backward(loss)
    assert gradient.type == fluid.core.VarDesc.VarType.SELECTED_ROWS
    assert gradient.shape == (5, 2)
