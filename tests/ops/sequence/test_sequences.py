"""What sequence ops refuse, as real Fluid does: lengths that do not fit, levels they do not take."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OpError
from refluid.executor import Executor

ROWS = np.arange(10, dtype="float32").reshape(5, 2)


def sequences(array, *lengths):
    return fluid.create_lod_tensor(np.asarray(array), [list(level) for level in lengths], fluid.CPUPlace())


def column(*numbers):
    return np.array(numbers, "int64").reshape(-1, 1)


def run(build, eager=True, **feed):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        variables = []
        for name, value in feed.items():
            lod_level = len(value.lod()) if isinstance(value, fluid.LoDTensor) else 0
            array = np.array(value)
            shape, dtype = [-1, *array.shape[1:]], str(array.dtype)
            variables.append(fluid.layers.data(name, shape, append_batch_size=False, dtype=dtype, lod_level=lod_level))
        out = build(*variables)
    outputs = list(out) if isinstance(out, list | tuple) else [out]
    return Executor(eager=eager).run(main, feed=feed, fetch_list=outputs, return_numpy=False)


layers = fluid.layers
X = sequences(ROWS, [2, 3])
NESTED = sequences(ROWS, [1, 1], [2, 3])


def padded_to_two(x):
    return layers.sequence_pad(x, layers.assign(np.float32([0.0])), maxlen=2)


REFUSED = {
    "slice beyond": (layers.sequence_slice, (X, column(1, 0), column(2, 1)), "reach beyond a sequence"),
    "slice before": (layers.sequence_slice, (X, column(-1, 0), column(1, 1)), "reach beyond a sequence"),
    "slices missing": (layers.sequence_slice, (X, column(1), column(1)), "1 numbers in Offset for the 2 sequences"),
    "slice levels": (layers.sequence_slice, (NESTED, column(1, 0), column(1, 1)), "one LoD level, but has 2"),
    "pad": (padded_to_two, (X,), "longer than padded_length 2"),
    "unpad": (layers.sequence_unpad, (np.zeros((2, 3, 2), "float32"), np.int64([4, 1])), r"not in \[0, 4\)"),
    "unpad count": (layers.sequence_unpad, (np.zeros((2, 3, 2), "float32"), np.int64([1])), "1 numbers in Length"),
    "reshape": (lambda x: layers.sequence_reshape(x, 4), (X,), "does not fill rows of new_dim 4"),
    "expand_as": (layers.sequence_expand_as, (ROWS[:3], X), "3 rows for the 2 sequences of Y"),
    "expand": (layers.sequence_expand, (ROWS[:3], X), "3 rows for the 2 sequences of Y"),
    "expand sequences": (layers.sequence_expand, (sequences(ROWS, [1, 1, 3]), X), "3 sequences for the 2 sequences"),
    "expand inner": (layers.sequence_expand, (ROWS, NESTED), "as many rows as Y has sequences"),
    "reset": (lambda x: layers.lod_reset(x, target_lod=[0, 2, 4]), (ROWS,), "must be the number of rows"),
    "reset begin": (lambda x: layers.lod_reset(x, target_lod=[1, 5]), (ROWS,), "begin with 0 and not go down"),
    "reset down": (lambda x: layers.lod_reset(x, target_lod=[0, 4, 3, 5]), (ROWS,), "begin with 0 and not go down"),
    "reset by values": (layers.lod_reset, (ROWS, np.int32([0, 2, 4])), "must be the number of rows"),
    "reset like": (layers.lod_reset, (ROWS, sequences(ROWS[:4], [2, 2])), "must be the number of rows"),
    "append": (lambda x: layers.lod_append(x, [0, 2, 5]), (X,), "as many sequences as X has rows"),
    "concat": (lambda *x: layers.sequence_concat(list(x)), (X, sequences(ROWS, [1, 1, 3])), "different numbers"),
    "concat levels": (lambda *x: layers.sequence_concat(list(x)), (NESTED, NESTED), "one LoD level, but has 2"),
    "distance": (
        layers.edit_distance,
        (sequences(column(1, 2, 3), [2, 1]), sequences(column(1, 2), [0, 2])),
        "a sequence of Refs is empty",
    ),
    "distance levels": (
        lambda x: layers.edit_distance(x, x),
        (sequences(column(1, 2, 3), [1, 1], [2, 1]),),
        "one LoD level, but has 2",
    ),
    "tags": (
        layers.linear_chain_crf,
        (X, sequences(column(0, 1, 0, 1, 0), [3, 2])),
        "Label and Emission differ in length",
    ),
    "row_conv": (lambda x: layers.row_conv(x, 1), (NESTED,), "one LoD level, but has 2"),
    "no sequences": (lambda x: layers.sequence_pool(x, "sum"), (ROWS,), "must hold sequences"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    build, feeds, problem = REFUSED[name]
    with pytest.raises((OpError, ValueError), match=problem):
        run_with_parameters(build, feeds)


def run_with_parameters(build, feeds):
    """Runs op by op: nothing is compiled. Parameters are all ones."""
    named = {f"x{i}": value for i, value in enumerate(feeds)}

    def built(*variables):
        out = build(*variables)
        for parameter in fluid.default_main_program().all_parameters():
            shape = [int(dim) for dim in parameter.shape]
            fluid.global_scope().var(parameter.name).get_tensor().set(np.ones(shape, "float32"), fluid.CPUPlace())
        return out

    return run(built, **named)


def test_a_compiled_step_checks_what_is_fed_before_it_changes_anything():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [2], lod_level=1)
        begin, length = (fluid.layers.data(name, [1], dtype="int64") for name in ("begin", "length"))
        part = fluid.layers.sequence_slice(fluid.layers.fc(x, 3), begin, length)
        loss = fluid.layers.mean(part)
        fluid.optimizer.SGD(0.1).minimize(loss)
    executor = Executor()
    executor.run(startup)
    weight = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
    before = np.array(weight)
    with pytest.raises(OpError, match="reach beyond a sequence of X[^~]*written at[^~]*nothing was updated"):
        executor.run(main, feed={"x": X, "begin": column(1, 0), "length": column(2, 1)}, fetch_list=[loss])
    np.testing.assert_array_equal(np.array(weight), before)
    executor.run(main, feed={"x": X, "begin": column(1, 0), "length": column(1, 1)}, fetch_list=[loss])
    assert not np.array_equal(np.array(weight), before)
    (key,) = main.lowered.steps
    step = main.lowered.steps.get(key).step_in(fluid.global_scope())
    assert step.function.in_step == ()  # no copy of the state is kept for the check


def test_what_follows_from_parameters_is_checked_inside_the_step():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [2], lod_level=1)
        bound = fluid.layers.create_parameter([1], "float32", default_initializer=fluid.initializer.Constant(2.0))
        ids = fluid.layers.cast(fluid.layers.elementwise_mul(fluid.layers.reduce_sum(x, 1), bound), "int64")
        found = fluid.layers.embedding(fluid.layers.reshape(ids, [-1, 1]), [20, 3])
        loss = fluid.layers.mean(found)
        fluid.optimizer.SGD(0.1).minimize(loss)
    executor = Executor()
    executor.run(startup)
    table = fluid.global_scope().find_var("embedding_0.w_0").get_tensor()
    before = np.array(table)
    with pytest.raises(IndexError, match=r"a computed id of Ids .* is not in \[0, 20\)"):
        executor.run(main, feed={"x": X}, fetch_list=[loss])
    np.testing.assert_array_equal(np.array(table), before)
    executor.run(main, feed={"x": sequences(ROWS[:2], [1, 1])}, fetch_list=[loss])
    assert not np.array_equal(np.array(table), before)


def windows(**attrs):
    def build(x, filter, *padding):
        block = fluid.default_main_program().global_block()
        out = block.create_var(name="out", dtype="float32")
        inputs = {"X": x, "Filter": filter, **dict(zip(["PaddingData"], padding, strict=False))}
        block.append_op(type="sequence_conv", inputs=inputs, outputs={"Out": out}, attrs={"contextLength": 3, **attrs})
        return out

    return build


def test_windows_of_sequences_begin_at_every_row():
    with pytest.raises(OpError, match="contextStride must be 1, as in Fluid"):
        run(windows(contextStride=2), x=X, filter=np.ones((6, 2), "float32"))


@pytest.mark.parametrize("padding", [{}, {"padding": np.ones((3, 2), "float32")}])
def test_learned_padding_has_a_row_for_each_place_beyond_a_sequence(padding):
    learned = windows(contextStart=-1, contextStride=1, paddingTrainable=True)
    with pytest.raises(OpError, match=r"PaddingData must have the shape \[2, 2\]"):
        run(learned, x=X, filter=np.ones((6, 2), "float32"), **padding)


def test_an_image_is_not_larger_than_its_batch():
    def cut(image, size):
        return layers.im2sequence(image, input_image_size=size, filter_size=2, stride=1, padding=0, out_stride=1)

    with pytest.raises(OpError, match="Y names an image that is larger than X"):
        run(cut, image=np.ones((1, 1, 3, 3), "float32"), size=np.float32([[3, 4]]))


def test_positions_of_sequences_need_an_even_number_of_columns():
    with pytest.raises(OpError, match="X must have one level of sequences of rows, with an even number of columns"):
        run(lambda x: layers.add_position_encoding(x, 1.0, 1.0), x=sequences(np.ones((2, 3), "float32"), [2]))


def test_sequence_scatter_takes_variables_of_fixed_size():
    x, places, updates = (
        fluid.data("x", [2, 4]),
        fluid.data("places", [3, 1], "int64", lod_level=1),
        fluid.data("updates", [3, 1], lod_level=1),
    )
    feed = {
        "x": np.zeros((2, 4), "float32"),
        "places": sequences(column(0, 3, 1), [2, 1]),
        "updates": sequences(np.float32([[1], [2], [3]]), [2, 1]),
    }
    out = layers.sequence_scatter(x, places, updates)
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])[0]
    assert found.tolist() == [[1, 0, 0, 2], [0, 3, 0, 0]]
