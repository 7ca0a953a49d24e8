"""Sequences taken step by step: rank tables, arrays of steps, and DynamicRNN, on batches of all kinds."""

import numpy as np

from golden.case import LayerCase, Lod, f32, ints, layer_case

CASES = []

RAGGED = ("ragged", [2, 4, 1])
BATCHES = [RAGGED, ("with_empty_ones", [0, 3, 0, 2]), ("of_length_one", [1, 1, 1]), ("with_a_long_one", [1, 23, 2])]


def lod(lengths, width, salt=0):
    return Lod(f32(sum(lengths), width, salt=salt), [lengths])


def nested(outer, inner, width, salt=0):
    return Lod(f32(sum(inner), width, salt=salt), [outer, inner])


def on_batches(batches=BATCHES, **feeds):
    """Decorator: a case for each batch; ``feeds`` are functions of its lengths."""

    def add(build):
        for name, lengths in batches:
            values = {feed: make(lengths) for feed, make in feeds.items()}
            CASES.append(LayerCase(build.__name__ + "_" + name, build, values))
        return build

    return add


# The parts.


@on_batches(x=lambda lengths: lod(lengths, 3))
def steps_and_back(fluid, x):
    parts = fluid.layers.control_flow
    table = parts.lod_rank_table(x)
    return [parts.array_to_lod_tensor(parts.lod_tensor_to_array(x, table), table), parts.max_sequence_len(table)]


@layer_case(CASES, grads=False, x=lod([2, 4, 0, 3], 3))
def single_steps(fluid, x):
    layers, parts = fluid.layers, fluid.layers.control_flow
    array = parts.lod_tensor_to_array(x, parts.lod_rank_table(x))
    return [layers.array_read(array, layers.fill_constant([1], "int64", i)) for i in range(3)]


NESTED = nested([1, 3, 0, 2], [2, 1, 0, 3, 1, 3], 2)


@layer_case(CASES, x=NESTED)
def steps_of_outer_sequences_and_back(fluid, x):
    parts = fluid.layers.control_flow
    table = parts.lod_rank_table(x)
    return [parts.array_to_lod_tensor(parts.lod_tensor_to_array(x, table), table), parts.max_sequence_len(table)]


@layer_case(CASES, x=NESTED)
def steps_of_inner_sequences_and_back(fluid, x):
    parts = fluid.layers.control_flow
    table = parts.lod_rank_table(x, level=1)
    return [parts.array_to_lod_tensor(parts.lod_tensor_to_array(x, table), table), parts.max_sequence_len(table)]


@layer_case(CASES, grads=False, x=NESTED)
def single_steps_of_outer_sequences(fluid, x):
    layers, parts = fluid.layers, fluid.layers.control_flow
    array = parts.lod_tensor_to_array(x, parts.lod_rank_table(x))
    return [layers.array_read(array, layers.fill_constant([1], "int64", i)) for i in range(3)]


@layer_case(
    CASES, x=lod([2, 4, 1, 2], 3), rows=f32(4, 2), y=lod([1, 2, 3, 1], 2), z=nested([1, 2, 1, 1], [2, 1, 3, 1, 1], 2)
)
def reordered_by_rank(fluid, x, rows, y, z):
    table = fluid.layers.control_flow.lod_rank_table(x)
    return [fluid.layers.reorder_lod_tensor_by_rank(each, table) for each in (rows, y, z)]


@layer_case(
    CASES, x=lod([2, 4, 1, 2], 3), rows=f32(4, 2), y=lod([1, 2, 3, 1], 2), z=nested([1, 2, 1, 1], [2, 1, 3, 1, 1], 2)
)
def shrunk_to_what_still_runs(fluid, x, rows, y, z):
    layers, parts = fluid.layers, fluid.layers.control_flow
    table = parts.lod_rank_table(x)
    one = layers.fill_constant([1], "int64", 1)
    return [parts.shrink_memory(each, one, table) for each in (rows, y, z)]


# DynamicRNN.


@on_batches(x=lambda lengths: lod(lengths, 3))
def dynamic_rnn(fluid, x):
    layers = fluid.layers
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[4])
        hidden = layers.fc([word, before], 4, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.output(hidden)
    return rnn()


@on_batches(x=lambda lengths: lod(lengths, 3), first=lambda lengths: f32(len(lengths), 4, salt=1))
def dynamic_rnn_that_begins_with_rows(fluid, x, first):
    layers = fluid.layers
    rnn = layers.DynamicRNN(name="sums")
    with rnn.block():
        word = rnn.step_input(x)
        before = rnn.memory(init=first, need_reorder=True)
        hidden = layers.tanh(layers.fc(word, 4) + before)
        rnn.update_memory(before, hidden)
        rnn.output(hidden, layers.fc(hidden, 2, act="softmax"))
    return rnn()


@layer_case(CASES, x=lod([1, 3, 2], 4), first=f32(3, 4, salt=1))
def dynamic_rnn_that_begins_with_rows_in_its_own_order(fluid, x, first):
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        before = rnn.memory(init=first)
        total = fluid.layers.elementwise_add(word, before)
        rnn.update_memory(before, total)
        rnn.output(total, before)
    return rnn()


@on_batches(
    [RAGGED, ("with_a_long_one", [1, 23, 2])],
    x=lambda lengths: lod(lengths, 3),
    source=lambda lengths: lod([length % 4 + 1 for length in lengths], 4, salt=1),
)
def dynamic_rnn_with_attention(fluid, x, source):
    layers = fluid.layers
    projected = layers.fc(source, 5, bias_attr=False)
    first = layers.fc(layers.sequence_last_step(source), 5, act="tanh")
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        values, keys = rnn.static_input(source), rnn.static_input(projected)
        before = rnn.memory(init=first, need_reorder=True)
        query = layers.sequence_expand(layers.fc(before, 5, bias_attr=False), keys)
        scores = layers.fc(layers.tanh(keys + query), 1, bias_attr=False)
        weights = layers.reshape(layers.sequence_softmax(scores), shape=[-1])
        context = layers.sequence_pool(layers.elementwise_mul(values, weights, axis=0), "sum")
        hidden = layers.fc([word, context, before], 5, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.output(layers.fc(hidden, 6, act="softmax"))
    return rnn()


@layer_case(CASES, x=lod([2, 4, 1], 3), y=lod([2, 4, 1], 2, salt=1))
def dynamic_rnn_with_two_of_everything(fluid, x, y):
    layers = fluid.layers
    rows = layers.sequence_first_step(y)
    rnn = layers.DynamicRNN()
    with rnn.block():
        left, right = rnn.step_input(x), rnn.step_input(y)
        beside = rnn.static_input(rows)
        hidden = rnn.memory(shape=[4], value=0.5)
        cell = rnn.memory(shape=[4])
        new_cell = layers.tanh(layers.fc([left, right, beside, hidden], 4) + cell)
        new_hidden = layers.sigmoid(new_cell) * hidden
        rnn.update_memory(hidden, new_hidden)
        rnn.update_memory(cell, new_cell)
        rnn.output(new_hidden, left)
    return rnn()


@layer_case(CASES, ids=Lod(ints(7, 1, high=9), [[2, 4, 1]]))
def dynamic_rnn_over_ids(fluid, ids):
    layers = fluid.layers
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = layers.embedding(rnn.step_input(ids), [9, 3])
        before = rnn.memory(shape=[3])
        hidden = layers.tanh(word + before)
        rnn.update_memory(before, hidden)
        rnn.output(hidden)
    return rnn()


@on_batches(x=lambda lengths: lod(lengths, 12))
def dynamic_rnn_of_gru_units(fluid, x):
    layers = fluid.layers
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[4])
        hidden, _, _ = layers.gru_unit(word, before, 12)
        rnn.update_memory(before, hidden)
        rnn.output(hidden)
    return layers.sequence_pool(rnn(), "average")


@layer_case(CASES, x=lod([2, 4, 1], 3))
def dynamic_rnn_of_lstm_units(fluid, x):
    layers = fluid.layers
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        hidden, cell = rnn.memory(shape=[4]), rnn.memory(shape=[4])
        new_hidden, new_cell = layers.lstm_unit(word, hidden, cell, forget_bias=1.0)
        rnn.update_memory(hidden, new_hidden)
        rnn.update_memory(cell, new_cell)
        rnn.output(new_hidden, new_cell)
    return rnn()


@layer_case(CASES, x=lod([2, 4, 1], 3))
def dynamic_rnn_without_memory(fluid, x):
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        rnn.output(fluid.layers.fc(rnn.step_input(x), 4, act="tanh"))
    return rnn()


@layer_case(CASES, x=lod([2, 4, 1], 4))
def dynamic_rnn_with_a_stopped_gradient_inside(fluid, x):
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[4])
        stopped = fluid.layers.scale(word, 3.0)
        stopped.stop_gradient = True
        hidden = fluid.layers.tanh(stopped * word + before)
        rnn.update_memory(before, hidden)
        rnn.output(hidden)
    return rnn()


@layer_case(CASES, x=lod([2, 4, 1], 3))
def dynamic_rnn_that_counts(fluid, x):
    layers = fluid.layers
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        count = rnn.memory(shape=[1], value=1, dtype="int64")
        rnn.update_memory(count, layers.scale(count, scale=2.0))
        rnn.output(layers.elementwise_mul(word, layers.cast(count, "float32"), axis=0))
    return rnn()


@layer_case(CASES, x=NESTED)
def dynamic_rnn_over_outer_sequences(fluid, x):
    layers = fluid.layers
    rnn = layers.DynamicRNN()
    with rnn.block():
        sentence = layers.sequence_pool(rnn.step_input(x), "sum")
        before = rnn.memory(shape=[3])
        hidden = layers.fc([sentence, before], 3, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.output(hidden)
    return rnn()


@layer_case(CASES, x=nested([1, 3, 2], [2, 1, 2, 3, 1, 3], 2))
def dynamic_rnn_over_inner_sequences(fluid, x):
    layers = fluid.layers
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x, level=1)
        before = rnn.memory(shape=[3])
        hidden = layers.fc([word, before], 3, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.output(hidden)
    return rnn()


@layer_case(CASES, grads=False, x=nested([1, 3, 2], [2, 1, 2, 3, 1, 3], 2))  # real Fluid cannot differentiate it
def dynamic_rnn_in_a_dynamic_rnn(fluid, x):
    layers = fluid.layers
    outer = layers.DynamicRNN()
    with outer.block():
        sentences = outer.step_input(x)
        document = outer.memory(shape=[3])
        inner = layers.DynamicRNN()
        with inner.block():
            word = inner.step_input(sentences)
            before = inner.memory(shape=[3])
            hidden = layers.fc([word, before], 3, act="tanh")
            inner.update_memory(before, hidden)
            inner.output(hidden)
        after = layers.fc([layers.sequence_last_step(inner()), document], 3, act="tanh")
        outer.update_memory(document, after)
        outer.output(after)
    return outer()


# Sequences sorted by a mask, and arrays as one tensor.


@layer_case(
    CASES,
    x=lod([2, 1, 4], 2),
    y=nested([1, 2, 1], [2, 1, 3, 1], 2),
    rows=f32(3, 2, salt=1),
    mask=np.array([[True], [False], [True]]),
    inner_mask=np.array([[False], [True], [True], [False]]),
)
def split_by_a_mask_and_merged(fluid, x, y, rows, mask, inner_mask):
    parts, results = fluid.layers.control_flow, []
    for value, chosen, level in ((x, mask, 0), (y, mask, 0), (rows, mask, 0), (y, inner_mask, 1)):
        true, false = parts.split_lod_tensor(value, chosen, level=level)
        results += [true, false, parts.merge_lod_tensor(true, false, value, chosen, level=level)]
    return results


def two_in_an_array(fluid, first, second):
    layers = fluid.layers
    array = layers.array_write(layers.tanh(first), layers.fill_constant([1], "int64", 0))
    return layers.array_write(layers.square(second), layers.fill_constant([1], "int64", 1), array=array)


@layer_case(CASES, grads=False, x=f32(2, 3), y=f32(2, 2, salt=1))  # of unlike tensors, real Fluid's gradients are wrong
def array_of_unlike_tensors_as_one_tensor(fluid, x, y):
    return fluid.layers.tensor_array_to_tensor(two_in_an_array(fluid, x, y))


for _axis, _stack in ((1, False), (0, False), (1, True)):

    def _as_one_tensor(fluid, x, axis=_axis, stack=_stack):
        return fluid.layers.tensor_array_to_tensor(two_in_an_array(fluid, x, x), axis=axis, use_stack=stack)

    CASES.append(LayerCase("array_as_one_tensor_%d_%s" % (_axis, _stack), _as_one_tensor, {"x": f32(2, 3)}))


@layer_case(CASES, x=Lod(f32(6, 2), [[2, 3, 1]]))
def steps_that_are_read_twice(fluid, x):
    control_flow = fluid.layers.control_flow
    table = control_flow.lod_rank_table(x)
    steps = control_flow.lod_tensor_to_array(x, table)
    second = fluid.layers.array_read(steps, fluid.layers.fill_constant([1], "int64", 1))
    return [control_flow.array_to_lod_tensor(steps, table), second]
