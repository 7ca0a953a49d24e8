"""Sequences: pooling, softmax, convolutions, and everything that cuts them anew. Lengths 0, 1 and long ones."""

import numpy as np

from golden.case import Case, LayerCase, Lod, distinct, f32, ints, layer_case

RAGGED = [[3, 1, 4, 2]]
HOLES = [[3, 0, 4, 1, 0]]
LONG = [[40, 1, 2]]
NESTED = [[2, 1], [3, 1, 4]]

CASES = []
for values, lengths, suffix in (
    (distinct(10, 3), RAGGED, ""),
    (distinct(43, 2), LONG, "long"),
    (distinct(8, 3), HOLES, "with empty ones"),
    (distinct(8, 2), NESTED, "nested"),
    (distinct(6, 2, 3), [[2, 4]], "3d"),
):
    attrs = {"pooltype": "MAX", "pad_value": 0.5}
    CASES.append(Case("sequence_pool", {"X": Lod(values, lengths)}, "Out MaxIndex", attrs, name=suffix))
CASES += [
    Case("sequence_softmax", {"X": Lod(f32(10, 1), RAGGED)}),
    Case("sequence_softmax", {"X": Lod(f32(10), RAGGED)}, name="vector"),
    Case("sequence_softmax", {"X": Lod(f32(8, 1, low=-90, high=90), HOLES)}, name="with empty ones"),
    Case("sequence_softmax", {"X": Lod(f32(8, 1), NESTED)}, name="nested"),
    Case("sequence_reverse", {"X": Lod(f32(10, 2), RAGGED)}, "Y"),
    Case("sequence_reverse", {"X": Lod(ints(8, 1, high=9), HOLES)}, "Y", name="with empty ones"),
    Case("row_conv", {"X": Lod(f32(10, 3), RAGGED), "Filter": f32(3, 3)}),
    Case("sequence_expand_as", {"X": f32(4, 2), "Y": Lod(f32(10, 1), RAGGED)}),
    Case("sequence_expand_as", {"X": f32(5, 2), "Y": Lod(f32(8, 1), HOLES)}, name="with empty ones"),
    Case("sequence_expand", {"X": f32(4, 2), "Y": Lod(f32(10, 1), RAGGED)}, attrs={"ref_level": 0}),
    Case("sequence_expand", {"X": f32(5, 2), "Y": Lod(f32(8, 1), HOLES)}, attrs={"ref_level": -1}),
    Case("sequence_expand", {"X": f32(2, 2), "Y": Lod(f32(8, 1), NESTED)}, attrs={"ref_level": 0}, name="outer"),
    Case("sequence_expand", {"X": f32(3, 2), "Y": Lod(f32(8, 1), NESTED)}, attrs={"ref_level": 1}, name="inner"),
    Case(
        "sequence_expand",
        {"X": Lod(f32(5, 2), [[2, 3]]), "Y": Lod(f32(8, 1), NESTED)},
        attrs={"ref_level": 0},
        name="sequences",
    ),
    Case(
        "sequence_expand",
        {"X": Lod(f32(5, 2), [[2, 3]]), "Y": Lod(f32(3, 1), [[1, 2]])},
        attrs={"ref_level": 0},
        name="sequences by rows",
    ),
    Case(
        "sequence_pad",
        {"X": Lod(f32(10, 2), RAGGED), "PadValue": np.float32([0.5])},
        "Out Length",
        {"padded_length": -1},
    ),
    Case(
        "sequence_pad",
        {"X": Lod(f32(10, 2), RAGGED), "PadValue": np.float32([0.5, 1.5])},
        "Out Length",
        {"padded_length": 6},
        name="longer",
    ),
    Case("sequence_unpad", {"X": f32(3, 4, 2), "Length": np.int64([2, 4, 1])}),
    Case("sequence_unpad", {"X": f32(3, 4), "Length": np.int64([4, 1, 2])}, name="numbers"),
    Case(
        "sequence_slice",
        {
            "X": Lod(f32(10, 2), RAGGED),
            "Offset": np.int64([[1], [0], [2], [0]]),
            "Length": np.int64([[2], [1], [1], [2]]),
        },
    ),
    Case("sequence_reshape", {"X": Lod(f32(10, 4), [[2, 4, 4]])}, attrs={"new_dim": 8}),
    Case("sequence_reshape", {"X": Lod(f32(5, 4), [[2, 3]])}, attrs={"new_dim": 2}, name="narrow"),
    Case(
        "sequence_scatter",
        {
            "X": f32(3, 6),
            "Ids": Lod(np.int64([[0], [1], [2], [5], [4], [3], [3]]), [[3, 1, 3]]),
            "Updates": Lod(f32(7, 1), [[3, 1, 3]]),
        },
    ),
    Case("sequence_mask", {"X": np.int64([3, 0, 5])}, "Y", {"maxlen": 6, "out_dtype": 5}),
    Case("sequence_mask", {"X": np.int64([3, 0, 5])}, "Y", {"out_dtype": 3}, name="longest"),
    Case("sequence_mask", {"X": np.int64([[3], [1]])}, "Y", {"maxlen": 4, "out_dtype": 2}, name="column"),
    Case("sequence_enumerate", {"X": Lod(ints(10, 1, high=9), RAGGED)}, attrs={"win_size": 3, "pad_value": 7}),
    Case("sequence_enumerate", {"X": Lod(ints(8, 1, high=9), HOLES)}, attrs={"win_size": 2, "pad_value": 0}),
    Case(
        "sequence_erase",
        {"X": Lod(np.int64([[2], [2], [6], [1], [3], [9], [6], [1]]), [[3, 5]])},
        attrs={"tokens": [2, 3, 5]},
    ),
    Case("sequence_concat", {"X": [Lod(f32(5, 2), [[2, 3]]), Lod(f32(4, 2, salt=1), [[3, 1]])]}),
    Case(
        "sequence_concat",
        {"X": [Lod(f32(8, 2), HOLES), Lod(f32(6, 2, salt=1), [[1, 2, 0, 3, 0]])]},
        name="with empty ones",
    ),
    Case("lod_reset", {"X": Lod(f32(6, 2), [[2, 4]])}, attrs={"target_lod": [0, 3, 6]}),
    Case("lod_reset", {"X": f32(6, 2)}, attrs={"target_lod": [0, 1, 6]}, name="plain"),
    Case("lod_reset", {"X": f32(6, 2), "Y": Lod(f32(6, 1), [[4, 2]])}, name="like Y"),
    Case("lod_reset", {"X": Lod(f32(6, 2), [[2, 4]]), "Y": np.int32([0, 1, 6])}, name="offsets in Y"),
    Case("im2sequence", {"X": f32(2, 2, 4, 5)}, attrs={"kernels": [2, 3], "strides": [1, 1], "paddings": [0, 0, 0, 0]}),
    Case("im2sequence", {"X": f32(1, 1, 3, 3)}, attrs={"kernels": [2, 2], "strides": [2, 1], "paddings": [1, 0, 1, 2]}),
    Case(
        "edit_distance",
        {"Hyps": Lod(ints(10, 1, high=3), RAGGED), "Refs": Lod(ints(9, 1, high=3, salt=1), [[2, 2, 3, 2]])},
        "Out SequenceNum",
        {"normalized": False},
    ),
    Case(
        "edit_distance",
        {"Hyps": Lod(ints(10, 1, high=3), RAGGED), "Refs": Lod(ints(9, 1, high=3, salt=1), [[2, 2, 3, 2]])},
        "Out SequenceNum",
        {"normalized": True},
    ),
    Case(
        "edit_distance",
        {
            "Hyps": ints(3, 4, high=3),
            "Refs": ints(3, 5, high=3, salt=1),
            "HypsLength": np.int64([4, 1, 3]),
            "RefsLength": np.int64([2, 5, 3]),
        },
        "Out SequenceNum",
        {"normalized": False},
        name="lengths",
    ),
    Case(
        "ctc_align",
        {"Input": Lod(np.int32([[0], [1], [2], [2], [0], [4], [0], [4], [5], [0], [6], [0], [0], [7]]), [[8, 6]])},
        "Output",
        {"blank": 0, "merge_repeated": True},
    ),
    Case(
        "ctc_align",
        {"Input": Lod(np.int32([[0], [1], [2], [2], [0], [4], [4]]), [[4, 3]])},
        "Output",
        {"blank": 0, "merge_repeated": False},
    ),
    Case(
        "ctc_align",
        {"Input": np.int32([[0, 1, 2, 2, 0, 4], [4, 4, 0, 4, 0, 0]]), "InputLength": np.int32([[6], [4]])},
        "Output OutputLength",
        {"blank": 0, "merge_repeated": True, "padding_value": 9},
        name="lengths",
    ),
]
for start in (-1, 0, 1, -3):
    CASES.append(
        Case(
            "sequence_conv",
            {"X": Lod(f32(10, 2), RAGGED), "Filter": f32(6, 4)},
            attrs={"contextLength": 3, "contextStart": start, "contextStride": 1},
            name="from %d" % start,
        )
    )
CASES.append(
    Case(
        "sequence_conv",
        {"X": Lod(f32(8, 2), HOLES), "Filter": f32(4, 3)},
        attrs={"contextLength": 2, "contextStart": 0, "contextStride": 1},
        name="with empty ones",
    )
)


# Gradients start from a loss here, not from fed weights: many of real Fluid's gradient ops want weights with LoD.


def layers_of(name, **feeds):
    """Decorator: a layer case for each way of cutting the feed x."""

    def add(build):
        CASES.append(LayerCase(name, build, feeds))
        return build

    return add


for kind in ("sum", "average", "sqrt", "max", "first", "last"):
    for shape, lengths, suffix in (
        ((10, 3), RAGGED, ""),
        ((43, 2), LONG, "_long"),
        ((8, 3), HOLES, "_with_empty_ones"),
        ((8, 2), NESTED, "_nested"),
    ):

        @layers_of("sequence_pool_" + kind + suffix, x=Lod(distinct(*shape), lengths))
        def _pool(fluid, x, kind=kind):
            return fluid.layers.sequence_pool(x, kind, pad_value=0.5)


for shape, lengths, suffix in (((10, 1), RAGGED, ""), ((43, 1), LONG, "_long"), ((8, 1), NESTED, "_nested")):

    @layers_of("sequence_softmax_layer" + suffix, x=Lod(f32(*shape), lengths))
    def _softmax(fluid, x):
        return fluid.layers.sequence_softmax(x)


for shape, lengths, suffix in (((10, 3), RAGGED, ""), ((43, 2), LONG, "_long"), ((8, 3), HOLES, "_with_empty_ones")):

    @layers_of("sequence_conv_layer" + suffix, x=Lod(f32(*shape), lengths))
    def _conv(fluid, x):
        return fluid.layers.sequence_conv(x, num_filters=4, filter_size=3, act="tanh")


@layer_case(CASES, x=Lod(f32(10, 2), RAGGED))
def sequence_steps(fluid, x):
    return fluid.layers.sequence_first_step(x), fluid.layers.sequence_last_step(x)


@layer_case(CASES, x=Lod(f32(10, 2), RAGGED))
def sequence_conv_from_row(fluid, x):
    return fluid.layers.sequence_conv(x, num_filters=3, filter_size=2, padding_start=0, bias_attr=False)


@layer_case(CASES, x=Lod(f32(10, 2), RAGGED))
def sequence_conv_pool(fluid, x):
    return fluid.nets.sequence_conv_pool(x, num_filters=3, filter_size=3, act="tanh", pool_type="max")


@layer_case(CASES, x=Lod(f32(10, 3), RAGGED))
def row_conv_layer(fluid, x):
    return fluid.layers.row_conv(x, future_context_size=2, act="relu")


@layer_case(CASES, x=f32(4, 2), y=Lod(f32(10, 1), RAGGED))
def expand_rows(fluid, x, y):
    return fluid.layers.sequence_expand(x, y, ref_level=0), fluid.layers.sequence_expand_as(x, y)


@layer_case(CASES, x=Lod(f32(5, 2), [[2, 3]]), y=Lod(f32(8, 1), NESTED))
def expand_sequences(fluid, x, y):
    return fluid.layers.sequence_expand(x, y, ref_level=0)


@layer_case(CASES, x=Lod(f32(5, 2), [[2, 3]]), y=Lod(f32(3, 1), [[1, 2]]))
def expand_and_pool(fluid, x, y):
    return fluid.layers.sequence_pool(fluid.layers.sequence_expand(x, y, ref_level=0), "average")


@layer_case(CASES, x=Lod(f32(10, 2), RAGGED))
def pad_to_longest(fluid, x):
    padded, length = fluid.layers.sequence_pad(x, fluid.layers.assign(np.float32([0.5])))
    return padded, length


@layer_case(CASES, x=Lod(f32(10, 2), RAGGED))
def pad_and_unpad(fluid, x):
    padded, length = fluid.layers.sequence_pad(x, fluid.layers.assign(np.float32([0.5])), maxlen=6)
    return fluid.layers.sequence_unpad(fluid.layers.scale(padded, 2.0), length)


@layer_case(
    CASES, x=Lod(f32(10, 2), RAGGED), offset=np.int64([[1], [0], [2], [0]]), length=np.int64([[2], [1], [1], [2]])
)
def slice_of_sequences(fluid, x, offset, length):
    return fluid.layers.sequence_slice(x, offset, length)


@layer_case(CASES, x=Lod(f32(10, 4), [[2, 4, 4]]))
def reshape_wide(fluid, x):
    return fluid.layers.sequence_reshape(x, 8)


@layer_case(CASES, x=Lod(f32(5, 4), [[2, 3]]))
def reshape_narrow(fluid, x):
    return fluid.layers.sequence_reshape(x, 2)


@layer_case(
    CASES,
    x=f32(3, 6),
    ids=Lod(np.int64([[0], [1], [2], [5], [4], [3], [3]]), [[3, 1, 3]]),
    u=Lod(f32(7, 1), [[3, 1, 3]]),
)
def scatter_sequences(fluid, x, ids, u):
    return fluid.layers.sequence_scatter(x, ids, u)


@layer_case(CASES, x=Lod(f32(5, 2), [[2, 3]]), y=Lod(f32(4, 2, salt=1), [[3, 1]]))
def concat_sequences(fluid, x, y):
    return fluid.layers.sequence_concat([x, y])


@layer_case(CASES, x=Lod(f32(10, 2), RAGGED))
def reverse_sequences(fluid, x):
    return fluid.layers.sequence_reverse(x)


@layer_case(CASES, x=Lod(f32(6, 2), [[2, 4]]))
def reset_lod(fluid, x):
    return fluid.layers.sequence_pool(fluid.layers.lod_reset(x, target_lod=[0, 1, 6]), "sum")


@layer_case(CASES, x=Lod(f32(6, 2), [[1, 5]]), y=Lod(f32(6, 1), [[4, 2]]))
def reset_lod_like(fluid, x, y):
    return fluid.layers.sequence_pool(fluid.layers.lod_reset(x, y), "sum")


@layer_case(CASES, x=Lod(f32(3, 2), [[2, 1]]))
def append_lod(fluid, x):
    return fluid.layers.lod_append(x, [0, 1, 2, 3])


@layer_case(CASES, x=f32(2, 2, 4, 5))
def image_to_sequence(fluid, x):
    return fluid.layers.im2sequence(x, filter_size=[2, 3], stride=[1, 2], padding=1)


@layer_case(CASES, x=Lod(f32(10, 2), RAGGED), grads=False)
def length_masks(fluid, x):
    _, length = fluid.layers.sequence_pad(x, fluid.layers.assign(np.float32([0.0])))
    return fluid.layers.sequence_mask(length, dtype="float32"), fluid.layers.sequence_mask(length, maxlen=7)


@layer_case(CASES, x=Lod(ints(10, 1, high=9), RAGGED), grads=False)
def windows_of_ids(fluid, x):
    return fluid.layers.sequence_enumerate(x, win_size=2, pad_value=9)


@layer_case(CASES, x=Lod(ints(10, 1, high=3), RAGGED), y=Lod(ints(9, 1, high=3, salt=1), [[2, 2, 3, 2]]), grads=False)
def distance_with_ignored_ids(fluid, x, y):
    return fluid.layers.edit_distance(x, y, normalized=False, ignored_tokens=[1])


@layer_case(CASES, x=Lod(f32(10, 4), RAGGED), grads=False)
def greedy_ctc(fluid, x):
    return fluid.layers.ctc_greedy_decoder(x, blank=0)


@layer_case(CASES, ids=Lod(ints(10, 1, high=9), RAGGED), label=ints(4, 1, high=2))
def sentiment(fluid, ids, label):
    words = fluid.layers.embedding(ids, [9, 4], is_sparse=False)
    hidden = fluid.layers.fc(words, 3, act="tanh")
    pooled = fluid.layers.sequence_pool(hidden, "average")
    return fluid.layers.cross_entropy(fluid.layers.fc(pooled, 2, act="softmax"), label)


@layer_case(CASES, ids=Lod(ints(10, 1, high=9), RAGGED), label=Lod(ints(10, 1, high=3), RAGGED))
def tagging(fluid, ids, label):
    scores = fluid.layers.fc(fluid.layers.embedding(ids, [9, 4]), 3, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(scores, label))
    return loss, fluid.layers.mean(fluid.layers.accuracy(scores, label))  # mean: Fluid's accuracy keeps the LoD


@layer_case(CASES, x=Lod(f32(8, 2), NESTED))
def nested_pooling(fluid, x):
    return fluid.layers.sequence_pool(fluid.layers.fc(fluid.layers.sequence_pool(x, "max"), 3), "sum")


@layer_case(CASES, x=Lod(f32(10, 3), RAGGED))
def normalised_rows(fluid, x):
    # The bare results would all have the same squares, and no gradient.
    by_column = fluid.layers.batch_norm(fluid.layers.fc(x, 4, bias_attr=False), act="tanh")
    return by_column, fluid.layers.layer_norm(x, act="tanh")


@layer_case(
    CASES,
    x=Lod(f32(10, 3), RAGGED),
    context=f32(4, 3),
    rtol=1e-4,
    reason="the gradient of context is a small difference: softmax ignores what a sequence has in common",
)
def attention_over_sequence(fluid, x, context):
    expanded = fluid.layers.sequence_expand_as(context, x)
    hidden = fluid.layers.fc(fluid.layers.concat([x, expanded], axis=1), 3, act="tanh")
    weights = fluid.layers.sequence_softmax(fluid.layers.fc(hidden, 1, bias_attr=False))
    scaled = fluid.layers.elementwise_mul(x, fluid.layers.reshape(weights, [-1]), axis=0)
    return fluid.layers.sequence_pool(scaled, "sum")
