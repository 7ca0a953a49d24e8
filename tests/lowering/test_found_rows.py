"""Ops that find rows: how many they are depends on values, also where rows must not be padding."""

from __future__ import annotations

import numpy as np
import pytest
from jax._src import compiler

import paddle.fluid as fluid
from refluid.errors import PaddingWarning
from refluid.lowering.plan import Where, make_plan


def data(name, shape, **options):
    return fluid.layers.data(name, shape, append_batch_size=False, **options)


def sequences(array, *lengths):
    return fluid.create_lod_tensor(array, [list(lengths)], fluid.CPUPlace())


def erased(x):
    block = fluid.default_main_program().global_block()
    out = block.create_var(name="erased", dtype="int64")
    block.append_op(type="sequence_erase", inputs={"X": x}, outputs={"Out": out}, attrs={"tokens": [0]})
    return out


def test_they_run_on_the_host_only_where_rows_must_not_be_padding():
    found = erased(data("x", [-1, 1], dtype="int64", lod_level=1))
    block = fluid.default_main_program().global_block()
    for padded, where in ((True, Where.COMPILED), (False, Where.HOST)):
        assert [piece.where for piece in make_plan(block, [found.name], padded=padded).pieces] == [where]


def test_what_mixes_rows_does_not_see_padding():
    found = erased(data("x", [-1, 1], dtype="int64", lod_level=1))
    ordered, _ = fluid.layers.argsort(fluid.layers.cast(found, "float32"), axis=0)
    feed = {"x": sequences(np.array([[0], [5], [0], [3], [4]]), 2, 3)}
    with pytest.warns(PaddingWarning, match="argsort mixes rows"):
        (out,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[ordered], return_numpy=False)
    assert np.array(out).ravel().tolist() == [3, 4, 5]


# Ops on rows x = 0, 1, ... 4 in sequences of 2 and 3, and what they keep, in order. Their gradient counts.
def sliced(x):
    return fluid.layers.sequence_slice(x, data("begin", [2, 1], dtype="int64"), data("size", [2, 1], dtype="int64"))


def unpadded(x):
    dense, _ = fluid.layers.sequence_pad(x, fluid.layers.fill_constant([1], "float32", 9.0), 4)
    return fluid.layers.sequence_unpad(dense, data("size", [2], dtype="int64"))


def expanded(x):
    return fluid.layers.sequence_expand(x, data("like", [-1, 1], lod_level=1))


KEPT = {
    sliced: ({"begin": np.array([[1], [0]]), "size": np.array([[1], [2]])}, [1, 2, 3]),
    unpadded: ({"size": np.array([1, 2])}, [0, 2, 3]),
    expanded: ({"like": sequences(np.zeros((3, 1), "float32"), 1, 2)}, [0, 1, 2, 3, 4, 2, 3, 4]),
}


@pytest.mark.parametrize("keep", KEPT, ids=lambda keep: keep.__name__)
def test_rows_that_are_picked_are_not_followed_by_padding_where_rows_mix(keep):
    feed, wanted = KEPT[keep]
    x = data("x", [-1, 1], lod_level=1)
    x.stop_gradient = False
    kept = keep(x)
    turned = fluid.layers.reverse(kept, 0)
    (gradient,) = fluid.gradients([fluid.layers.mean(turned)], [x])
    feed = {"x": sequences(np.arange(5, dtype="float32").reshape(5, 1), 2, 3), **feed}
    with pytest.warns(PaddingWarning, match="reverse mixes rows"):
        out, slope = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[turned, gradient], return_numpy=False)
    assert np.array(out).ravel().tolist() == wanted[::-1]
    np.testing.assert_allclose(np.array(slope).ravel() * len(wanted), [wanted.count(i) for i in range(5)])


def test_windows_of_images_of_several_sizes_are_not_followed_by_padding_where_rows_mix():
    images, sizes = data("images", [2, 1, 2, 2]), data("sizes", [2, 2])
    windows = fluid.layers.im2sequence(images, 1, 1, input_image_size=sizes, out_stride=1)
    ordered, _ = fluid.layers.argsort(windows, axis=0)
    feed = {"images": np.arange(8, dtype="float32").reshape(2, 1, 2, 2), "sizes": np.float32([[1, 2], [2, 1]])}
    with pytest.warns(PaddingWarning, match="argsort mixes rows"):
        (out,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[ordered], return_numpy=False)
    assert np.array(out).ravel().tolist() == [0, 1, 4, 6]


def test_different_numbers_of_rows_that_the_host_finds_share_what_is_compiled(monkeypatch):
    box, score = data("box", [1, 20, 4]), data("score", [1, 1, 20])
    kept = fluid.layers.multiclass_nms(box, score, 0.5, -1, -1, 1.0, background_label=-1)
    width = fluid.layers.reduce_sum(fluid.layers.slice(kept, [1], [4], [5]))
    exe = fluid.Executor(fluid.CPUPlace())
    found, compiled = [], []
    monkeypatch.setattr(compiler, "compile_or_get_cached", counting(compiler.compile_or_get_cached, compiled))
    for count in (9, 10, 10):
        points = (np.arange(20) < count).astype("float32").reshape(1, 1, 20)
        feed = {"box": np.tile(np.float32([0, 0, 1, 1]), (1, 20, 1)), "score": points}
        rows, total = exe.run(feed=feed, fetch_list=[kept, width], return_numpy=False)
        found.append((np.array(rows).shape, float(np.array(total)[0]), len(compiled)))
    first, second, third = found
    assert (first[:2], second[:2]) == (((9, 6), 9), ((10, 6), 10))
    assert first[2] > 0 and second[2] == third[2] == first[2]


def counting(compile, calls):
    def wrapped(*arguments, **options):
        calls.append(1)
        return compile(*arguments, **options)

    return wrapped
