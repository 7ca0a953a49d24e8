"""Layers with bodies: recurrences, branches, loops, and the arrays they fill."""

import numpy as np

from golden.case import Case, LayerCase, f32, layer_case

CASES = [Case("rnn_memory_helper", {"X": f32(2, 3)}, attrs={"dtype": 5}, grads="X")]


@layer_case(CASES, x=f32(3, 2, 4))
def static_rnn(fluid, x):
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 5], batch_ref=word)
        hidden = fluid.layers.fc([word, before], 5, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    return rnn()


@layer_case(CASES, x=f32(4, 2, 3), first=f32(2, 3, salt=1))
def static_rnn_with_initial_state(fluid, x, first):
    rnn = fluid.layers.StaticRNN(name="sums")
    with rnn.step():
        word = rnn.step_input(x)
        before = rnn.memory(init=first)
        total = fluid.layers.elementwise_add(word, before)
        rnn.update_memory(before, total)
        rnn.output(total, fluid.layers.scale(before, 2.0))
    return rnn()


@layer_case(CASES, x=f32(3, 2, 4), y=f32(3, 2, 2, salt=1), outside=f32(2, 5, salt=2))
def static_rnn_with_two_inputs_two_memories_and_a_variable_from_outside(fluid, x, y, outside):
    layers = fluid.layers
    rnn = layers.StaticRNN()
    with rnn.step():
        left, right = rnn.step_input(x), rnn.step_input(y)
        hidden = rnn.memory(shape=[-1, 5], batch_ref=left, init_value=0.5)
        cell = rnn.memory(shape=[-1, 5], batch_ref=right)
        new_cell = layers.tanh(layers.fc([left, right, hidden], 5) + cell)
        new_hidden = new_cell * outside
        rnn.update_memory(hidden, new_hidden)
        rnn.update_memory(cell, new_cell)
        rnn.step_output(new_hidden)
    return rnn()


@layer_case(CASES, x=f32(3, 2, 4))
def static_rnn_with_a_stopped_gradient_inside(fluid, x):
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 4], batch_ref=word)
        stopped = fluid.layers.scale(word, 3.0)
        stopped.stop_gradient = True
        hidden = fluid.layers.tanh(stopped * word + before)
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    return rnn()


@layer_case(CASES, x=f32(3, 4, 2))
def static_rnn_with_batch_norm(fluid, x):
    """Every step updates the averages."""
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 2], batch_ref=word)
        hidden = word * fluid.layers.batch_norm(word + before, momentum=0.5, moving_mean_name="average")
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    average = fluid.layers.scale(fluid.default_main_program().global_block().var("average"), 1.0)
    return [rnn(), average]


@layer_case(CASES, x=f32(2, 4))
def array_of_two(fluid, x):
    layers = fluid.layers
    i = layers.fill_constant([1], "int64", 0)
    array = layers.array_write(layers.tanh(x), i)
    j = layers.increment(i, in_place=False)  # in place, real Fluid would send both gradients to one position
    layers.array_write(layers.scale(x, 2.0), j, array=array)
    first, second = layers.array_read(array, i), layers.array_read(array, j)
    return [first * second, layers.array_length(array)]


@layer_case(CASES, x=f32(2, 4), y=f32(3, 1, salt=1))
def array_with_different_shapes_read_twice(fluid, x, y):
    layers = fluid.layers
    array = layers.create_array("float32")
    zero, one = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 1)
    layers.array_write(x, zero, array=array)
    layers.array_write(y, one, array=array)
    length = layers.array_length(array)
    again = layers.array_read(array, zero) * layers.array_read(array, zero)
    return [again, layers.array_read(array, one), length]


def _rate(fluid, step):
    layers = fluid.layers
    rate = layers.create_global_var([1], 5.0, "float32", persistable=True, name="rate")
    one, two = layers.fill_constant([1], "float32", 1.0), layers.fill_constant([1], "float32", 2.0)
    with layers.Switch() as switch:
        with switch.case(layers.less_than(step, one)):
            layers.assign(one, rate)
        with switch.case(layers.less_than(step, two)):
            layers.assign(layers.scale(two, 10.0), rate)
        with switch.default():
            layers.assign(layers.fill_constant([1], "float32", 9.0), rate)
    return layers.scale(rate, 1.0)


for _name, _step in (("first", 0.5), ("second", 1.5), ("default", 2.5)):
    CASES.append(LayerCase("switch_" + _name, _rate, {"step": np.array([_step], "float32")}, grads=False))


@layer_case(CASES, grads=False, x=f32(2, 3))
def switch_without_a_default(fluid, x):
    layers = fluid.layers
    kept = layers.create_global_var([1], 5.0, "float32", persistable=True, name="kept")
    with layers.Switch() as switch:
        with switch.case(layers.less_than(layers.reduce_sum(x), layers.fill_constant([1], "float32", -99.0))):
            layers.assign(layers.fill_constant([1], "float32", 1.0), kept)
    return layers.scale(kept, 2.0)


def _cond(fluid, x, bound):
    layers = fluid.layers
    smaller = layers.less_than(layers.reduce_mean(x), bound)
    return layers.cond(smaller, lambda: layers.fc(x, 3), lambda: layers.fc(x, 3, act="tanh"))


def _cond_of_a_nest(fluid, x, bound):
    layers = fluid.layers
    smaller = layers.less_than(layers.reduce_mean(x), bound)
    first, (second, third) = layers.cond(
        smaller, lambda: (x, [layers.scale(x, 2.0), x + 1]), lambda: (x * 3, [layers.tanh(x), x])
    )
    return [first, second * third]


for _build in (_cond, _cond_of_a_nest):
    for _name, _bound in (("true", 5.0), ("false", -5.0)):
        _feeds = {"x": f32(2, 4), "bound": np.array([_bound], "float32")}
        CASES.append(LayerCase(_build.__name__[1:] + "_" + _name, _build, _feeds))


@layer_case(CASES, x=f32(2, 3))
def select_output_and_select_input(fluid, x):
    layers = fluid.layers
    mask = layers.fill_constant([1], "int32", 1)
    block = fluid.default_main_program().global_block()
    ways = [block.create_var(name="way%d" % i, shape=x.shape, dtype="float32") for i in range(2)]
    layers.control_flow.select_output(layers.tanh(x), ways, mask)
    return layers.control_flow.select_input(ways, mask)


def _case(fluid, x, y):
    layers = fluid.layers
    one, two = layers.fill_constant([1], "float32", 1.0), layers.fill_constant([1], "float32", 2.0)
    return layers.case(
        [(layers.less_than(x, one), lambda: y * 3.0), (layers.less_than(x, two), lambda: layers.tanh(y))],
        default=lambda: y + x,
    )


def _case_without_default(fluid, x, y):
    layers = fluid.layers
    one, two = layers.fill_constant([1], "float32", 1.0), layers.fill_constant([1], "float32", 2.0)
    return layers.case(
        [(layers.less_than(x, one), lambda: y * 3.0), (layers.less_than(x, two), lambda: layers.tanh(y))]
    )


for _build in (_case, _case_without_default):
    for _name, _x in (("first", 0.5), ("second", 1.5), ("default", 2.5)):
        _feeds = {"x": np.array([_x], "float32"), "y": f32(2, 3)}
        CASES.append(LayerCase(_build.__name__[1:] + "_" + _name, _build, _feeds))


def _switch_case(fluid, index, y):
    return fluid.layers.switch_case(
        index, {1: lambda: y * 3.0, 4: lambda: fluid.layers.tanh(y)}, default=lambda: y + 1.0
    )


def _switch_case_of_a_list(fluid, index, y):
    return fluid.layers.switch_case(index, [lambda: y * 3.0, lambda: fluid.layers.tanh(y), lambda: y + 1.0])


for _build in (_switch_case, _switch_case_of_a_list):
    for _index in (0, 1, 4):
        _feeds = {"index": np.array([_index], "int64"), "y": f32(2, 3)}
        CASES.append(LayerCase("%s_%d" % (_build.__name__[1:], _index), _build, _feeds))


@layer_case(CASES, x=f32(2, 4))
def while_with_an_array(fluid, x):
    layers = fluid.layers
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    array = layers.array_write(x, i)
    going = layers.less_than(i, n)
    loop = layers.While(going)
    with loop.block():
        before = layers.array_read(array, i)
        after = layers.fc(before, 4, act="tanh")
        layers.increment(i, in_place=True)
        layers.array_write(after, i, array=array)
        layers.less_than(i, n, cond=going)
    return layers.array_read(array, n)


@layer_case(CASES, x=f32(3, 2, 4))
def while_over_two_arrays(fluid, x):
    layers = fluid.layers
    steps = [layers.squeeze(each, [0]) for each in layers.split(x, 3, dim=0)]
    positions = [layers.fill_constant([1], "int64", i) for i in range(4)]
    words = layers.create_array("float32")
    for position, step in zip(positions, steps):
        layers.array_write(step, position, array=words)
    i = layers.fill_constant([1], "int64", 0)
    states = layers.array_write(layers.fill_constant([2, 4], "float32", 0.5), i)
    going = layers.less_than(i, positions[3])
    loop = layers.While(going)
    with loop.block():
        word, state = layers.array_read(words, i), layers.array_read(states, i)
        new = layers.fc([word, state], 4, act="sigmoid")
        layers.increment(i, in_place=True)
        layers.array_write(new, i, array=states)
        layers.less_than(i, positions[3], cond=going)
    return [layers.array_read(states, positions[3]), layers.array_length(states)]


@layer_case(CASES, grads=False, x=f32(2, 4))
def while_without_arrays(fluid, x):
    layers = fluid.layers
    total = layers.fill_constant([2, 4], "float32", 1.0)
    limit = layers.fill_constant([1], "float32", 40.0)
    going = layers.less_than(layers.reduce_sum(total), limit)
    loop = layers.While(going)
    with loop.block():
        layers.assign(layers.abs(x) + total * 1.5, total)
        layers.less_than(layers.reduce_sum(total), limit, cond=going)
    return layers.scale(total, 2.0)


@layer_case(CASES, grads=False, x=f32(2, 4))
def while_that_grows_what_it_carries(fluid, x):
    layers = fluid.layers
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
    rows = layers.scale(x, 1.0)
    going = layers.less_than(i, n)
    loop = layers.While(going)
    with loop.block():
        layers.assign(layers.concat([rows, x], axis=0), rows)
        layers.increment(i, in_place=True)
        layers.less_than(i, n, cond=going)
    return layers.reduce_sum(rows)


@layer_case(CASES, grads=False, x=f32(2, 4))
def while_that_never_runs(fluid, x):
    layers = fluid.layers
    i, n = layers.fill_constant([1], "int64", 5), layers.fill_constant([1], "int64", 3)
    going = layers.less_than(i, n)
    out = layers.scale(x, 2.0)
    loop = layers.While(going)
    with loop.block():
        layers.assign(out * 2.0, out)
        layers.less_than(i, n, cond=going)
    return out


@layer_case(CASES, grads=False, x=f32(2, 4))  # differs: while-gradient
def while_loop(fluid, x):
    layers = fluid.layers
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 4)
    i, y = layers.while_loop(
        lambda i, y: layers.less_than(i, n), lambda i, y: [i + 1, layers.tanh(y * 2.0) + x], [i, layers.scale(x, 1.0)]
    )
    return [i, y]


def _ifelse(fluid, x, bound):
    layers = fluid.layers
    smaller = layers.less_than(layers.reduce_sum(x, dim=1, keep_dim=True), bound)
    choice = layers.IfElse(smaller)
    with choice.true_block():
        rows = choice.input(x)
        choice.output(layers.scale(rows, 2.0), rows)
    with choice.false_block():
        rows = choice.input(x)
        choice.output(layers.fc(rows, 3), layers.tanh(rows))
    return choice()


for _name, _bound in (("mixed", 0.0), ("all_true", 9.0), ("all_false", -9.0)):
    _feeds = {"x": f32(5, 3), "bound": np.full([5, 1], _bound, "float32")}
    CASES.append(LayerCase("ifelse_" + _name, _ifelse, _feeds))
