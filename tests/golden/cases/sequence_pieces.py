"""Layers that take sequences together with something else, on every way of cutting rows.

Where real Fluid refuses or errs, a layer is left out: row_conv fails on empty sequences, merge_lod_tensor loses rows
after them, shrink_memory fails when nothing is left, and warpctc writes beyond its memory for empty sequences and
weights the gradients of outer sequences wrongly.
"""

import numpy as np

from golden.case import Case, LayerCase, Lod, distinct, f32, ints
from golden.cases.sequence_edges import FLAT, NESTED

CASES = []


def case(name, build, lengths, make=distinct, width=2, rtol=1e-5, reason="", **feeds):
    feeds["x"] = Lod(make(sum(lengths[-1]), width), lengths)
    CASES.append(LayerCase(name, build, feeds, rtol=rtol, reason=reason))


def sliced_and_scattered(fluid, x, rows, offset, length, places):
    layers = fluid.layers
    offset.stop_gradient = length.stop_gradient = True
    updates = layers.fc(x, 1, bias_attr=False)
    return [layers.sequence_slice(x, offset, length), layers.sequence_scatter(rows, places, updates)]


def looked_ahead(fluid, x):
    return fluid.layers.row_conv(x, 2)


def still_running(fluid, x, rows):
    layers, parts = fluid.layers, fluid.layers.control_flow
    table = parts.lod_rank_table(x)
    one = layers.fill_constant([1], "int64", 1)
    return [parts.shrink_memory(rows, one, table), parts.shrink_memory(layers.scale(x, 2.0), one, table)]


def sorted_by_mask(fluid, x, mask):
    layers, parts = fluid.layers, fluid.layers.control_flow
    true, false = parts.split_lod_tensor(x, mask, level=0)
    merged = parts.merge_lod_tensor(layers.square(true), layers.scale(false, 3.0), x, mask, level=0)
    return [true, false, merged]


def one_way_or_the_other(fluid, x, mask):
    layers = fluid.layers
    branches = layers.IfElse(mask)
    with branches.true_block():
        branches.output(layers.scale(branches.input(x), 2.0))
    with branches.false_block():
        branches.output(layers.tanh(branches.input(x)))
    return branches()


def through_an_array(fluid, x):
    layers = fluid.layers
    zero, one = (layers.fill_constant([1], "int64", i) for i in range(2))
    array = layers.array_write(layers.tanh(x), zero)
    layers.array_write(layers.square(x), one, array=array)
    return [layers.array_read(array, one), layers.array_read(array, zero), layers.array_length(array)]


def as_one_tensor(axis, use_stack=False):
    def build(fluid, x):
        layers = fluid.layers
        array = layers.array_write(layers.tanh(x), layers.fill_constant([1], "int64", 0))
        layers.array_write(layers.square(x), layers.fill_constant([1], "int64", 1), array=array)
        return layers.tensor_array_to_tensor(array, axis=axis, use_stack=use_stack)

    return build


def labelled(fluid, x, labels):
    return fluid.layers.warpctc(x, labels, blank=0, norm_by_times=True)


def masks(count):
    return np.array([[i % 2 == 0] for i in range(count)])


def places_in(lengths):
    return Lod(np.concatenate([np.arange(n) for n in lengths]).astype("int64").reshape(-1, 1), [lengths])


for name, lengths in sorted(FLAT.items()):
    (cut,) = lengths
    case(
        "pieces " + name,
        sliced_and_scattered,
        lengths,
        rows=f32(len(cut), 60),
        offset=np.int64([[min(1, n // 2)] for n in cut]),
        length=np.int64([[n - n // 2] for n in cut]),
        places=places_in(cut),
    )
    if 0 not in cut:
        case("ahead " + name, looked_ahead, lengths)
        case("mask " + name, sorted_by_mask, lengths, mask=masks(len(cut)))
        case("branches " + name, one_way_or_the_other, lengths, mask=masks(len(cut)))
        counts = [(n + 2) // 3 for n in cut]
        labels = Lod(ints(sum(counts), 1, low=1, high=4, dtype="int32"), [counts])
        why = "sums of logarithms over 50 frames round differently"
        case("labels " + name, labelled, lengths, f32, 4, rtol=1e-4, reason=why, labels=labels)
    if name in ("holes", "long"):
        case("running " + name, still_running, lengths, rows=f32(len(cut), 2))
    case("array " + name, through_an_array, lengths)
    case("joined " + name, as_one_tensor(1), lengths)
for name, lengths in sorted(NESTED.items()):
    case("array " + name, through_an_array, lengths)
    case("joined " + name, as_one_tensor(0), lengths)
    case("stacked " + name, as_one_tensor(0, use_stack=True), lengths)
case("mask nested", sorted_by_mask, NESTED["nested"], mask=masks(2))
case("branches, one taken", one_way_or_the_other, [[3, 1, 4]], mask=np.zeros((3, 1), bool))
for name, lengths in sorted(NESTED.items()):
    ids = Lod(ints(sum(lengths[-1]), 1, high=4), lengths)
    CASES.append(Case("sequence_erase", {"X": ids}, attrs={"tokens": [1, 2]}, name=name))
