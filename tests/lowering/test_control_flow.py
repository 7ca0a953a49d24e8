"""Branches, loops and recurrences: what is compiled, what runs on the host, and that both differentiate exactly."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from refluid.ir import Program
from refluid.ir.protobuf import program_to_bytes
from refluid.lowering.plan import Where, make_plan


def pieces(*fetches):
    """Whether each piece of the program runs on the host."""
    plan = make_plan(fluid.default_main_program().global_block(), [v.name for v in fetches])
    return [piece.where is Where.HOST for piece in plan.pieces]


def run(feed, fetch, program=None):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe.run(program, feed=feed, fetch_list=fetch)


def data(name, *shape, dtype="float32"):
    variable = layers.data(name, list(shape), append_batch_size=False, dtype=dtype)
    variable.stop_gradient = dtype != "float32"
    return variable


def constant(value):
    return layers.fill_constant([1], "int64", value)


def numeric_gradient(function, x, step=1e-3):
    gradient = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        around = []
        for sign in (1, -1):
            moved = x.astype("float64")
            moved[place] += sign * step
            around.append(function(moved))
        gradient[place] = (around[0] - around[1]) / (2 * step)
    return gradient


def test_a_branch_trains_inside_one_compiled_piece():
    x = data("x", 2, 4)
    positive = layers.greater_than(layers.reduce_sum(x), layers.fill_constant([1], "float32", 0.0))
    out = layers.cond(positive, lambda: layers.fc(x, 3), lambda: layers.fc(x, 3, act="tanh"))
    loss = layers.mean(out)
    fluid.optimizer.SGD(0.1).minimize(loss)

    assert pieces(loss) == [False]
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    for sign in (1, -1):  # one branch, then the other
        feed = {"x": np.full((2, 4), sign, "float32")}
        before, after = (exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(2))
        assert after < before


def test_only_the_branch_that_is_taken_gets_a_gradient():
    x = data("x", 3)
    positive = layers.greater_than(layers.reduce_sum(x), layers.fill_constant([1], "float32", 0.0))
    out = layers.cond(positive, lambda: layers.square(x), lambda: layers.scale(x, 5.0))
    fluid.backward.append_backward(layers.reduce_sum(out))

    up, down = np.array([1, 2, 3], "float32"), np.array([-1, -2, -3], "float32")
    np.testing.assert_allclose(run({"x": up}, ["x@GRAD"])[0], 2 * up)
    np.testing.assert_allclose(run({"x": down}, ["x@GRAD"])[0], [5, 5, 5])


def test_a_loop_that_keeps_its_shapes_is_compiled():
    i, n = constant(0), data("n", 1, dtype="int64")
    total = layers.fill_constant([1], "float32", 1.0)
    i, total = layers.while_loop(lambda i, t: layers.less_than(i, n), lambda i, t: [i + 1, t * 2.0], [i, total])

    assert pieces(total) == [False]
    assert run({"n": np.array([10], "int64")}, [i, total]) == [10, 1024]


def test_a_loop_whose_shapes_grow_runs_on_the_host():
    i, n = constant(0), data("n", 1, dtype="int64")
    rows = layers.fill_constant([1, 2], "float32", 1.0)
    i, rows = layers.while_loop(
        lambda i, r: layers.less_than(i, n), lambda i, r: [i + 1, layers.concat([r, r], axis=0)], [i, rows]
    )

    assert True in pieces(rows)
    assert run({"n": np.array([3], "int64")}, [rows])[0].shape == (8, 2)


def test_the_gradient_of_a_loop_is_that_of_its_turns():
    x = data("x", 3)
    i, n = constant(0), constant(3)
    _, y = layers.while_loop(
        lambda i, y: layers.less_than(i, n), lambda i, y: [i + 1, layers.sin(y) * x], [i, layers.scale(x, 1.0)]
    )
    fluid.backward.append_backward(layers.reduce_sum(y))

    def turns(value):
        y = value
        for _ in range(3):
            y = np.sin(y) * value
        return y.sum()

    value = np.array([0.3, -0.8, 1.2], "float32")
    result, gradient = run({"x": value}, [y, "x@GRAD"])
    np.testing.assert_allclose(result.sum(), turns(value), rtol=1e-6)
    np.testing.assert_allclose(gradient, numeric_gradient(turns, value), rtol=1e-4)


def test_a_parameter_in_a_loop_gets_the_gradients_of_all_turns():
    """Real Fluid counts the last turn only, so the golden case of while_loop compares no gradients."""
    x = data("x", 2, 3)
    i, n = constant(0), constant(4)
    weight = fluid.ParamAttr(name="weight")

    def turn(i, y):
        return [i + 1, layers.tanh(layers.fc(y, 3, param_attr=weight, bias_attr=False)) + x]

    _, y = layers.while_loop(lambda i, y: layers.less_than(i, n), turn, [i, layers.scale(x, 1.0)])
    fluid.backward.append_backward(layers.reduce_sum(layers.square(y)))
    rows = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    result, by_weight, by_x, used = run({"x": rows}, [y, "weight@GRAD", "x@GRAD", "weight"])

    def turns(rows, weight):
        y = rows
        for _ in range(4):
            y = np.tanh(y @ weight) + rows
        return y

    np.testing.assert_allclose(result, turns(rows, used), rtol=1e-5, atol=1e-6)
    expected = numeric_gradient(lambda weight: np.square(turns(rows, weight)).sum(), used)
    np.testing.assert_allclose(by_weight, expected, rtol=1e-3, atol=1e-4)
    expected = numeric_gradient(lambda rows: np.square(turns(rows, used)).sum(), rows)
    np.testing.assert_allclose(by_x, expected, rtol=1e-3, atol=1e-4)


def test_a_differentiated_loop_may_end_by_a_computed_number():
    x = data("x", 1)
    limit = layers.fill_constant([1], "float32", 10.0)
    (y,) = layers.while_loop(lambda y: layers.less_than(y, limit), lambda y: [y * x], [layers.scale(x, 1.0)])
    fluid.backward.append_backward(layers.reduce_sum(y))

    result, gradient = run({"x": np.array([2.0], "float32")}, [y, "x@GRAD"])  # 2 -> 4 -> 8 -> 16 = x ** 4
    assert (result, gradient) == (16, 4 * 8)


def test_a_counter_incremented_in_place_leaves_array_gradients_exact():
    x = data("x", 3)
    i = constant(0)
    array = layers.array_write(layers.square(x), i)
    layers.increment(i)
    layers.array_write(layers.scale(x, 2.0), i, array=array)
    out = layers.array_read(array, constant(0)) * layers.array_read(array, i)
    fluid.backward.append_backward(layers.reduce_sum(out))

    assert pieces(out) == [False]
    value = np.array([1, 2, 3], "float32")
    result, gradient = run({"x": value}, [out, "x@GRAD"])
    np.testing.assert_allclose(result, 2 * value**3)
    np.testing.assert_allclose(gradient, 6 * value**2)


def test_operators_that_look_alike_are_differentiated_last_to_first():
    x = data("x", 2)
    i = constant(0)
    array = layers.create_array("float32")
    for _ in range(2):
        layers.array_write(x, i, array=array)
        layers.increment(i)
    out = layers.array_read(array, constant(0)) * 3.0 + layers.array_read(array, constant(1))
    fluid.backward.append_backward(layers.reduce_sum(out))

    np.testing.assert_allclose(run({"x": np.zeros(2, "float32")}, ["x@GRAD"])[0], [4, 4])


def test_an_array_is_fetched_as_a_list():
    array = layers.array_write(data("x", 2), constant(0))
    layers.array_write(layers.fill_constant([3], "float32", 7.0), constant(1), array=array)
    (fetched,) = run({"x": np.array([1, 2], "float32")}, [array])
    assert [each.tolist() for each in fetched] == [[1, 2], [7, 7, 7]]


def test_reading_past_the_end_of_an_array_says_so():
    array = layers.array_write(data("x", 2), constant(0))
    out = layers.array_read(array, constant(3))
    with pytest.raises(ValueError, match="position 3 is read, but the array holds 1"):
        run({"x": np.zeros(2, "float32")}, [out])


def test_a_branch_that_overwrites_its_input_differentiates_across_host_calls(capfd):
    x = data("x", 2)
    y = layers.scale(x, 1.0)
    positive = layers.greater_than(layers.reduce_sum(x), layers.fill_constant([1], "float32", 0.0))
    with layers.Switch() as switch, switch.case(positive):
        layers.assign(layers.square(y), y)
    loss = layers.reduce_sum(layers.Print(layers.square(y)))
    fluid.backward.append_backward(loss)

    value = np.array([2.0, 3.0], "float32")
    np.testing.assert_allclose(run({"x": value}, ["x@GRAD"])[0], 4 * value**3)
    np.testing.assert_allclose(run({"x": -value}, ["x@GRAD"])[0], -2 * value)


def test_a_branch_of_a_saved_model_that_does_not_name_what_it_keeps_keeps_it():
    kept = layers.create_global_var([1], 5.0, "float32", persistable=True, name="kept")
    x = data("x", 1)
    with layers.Switch() as switch, switch.case(layers.less_than(x, layers.fill_constant([1], "float32", 0.0))):
        layers.assign(layers.fill_constant([1], "float32", 1.0), kept)
    (branch,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "conditional_block"]
    branch.inputs["Input"] = [name for name in branch.inputs["Input"] if name != "kept"]
    out = layers.scale(kept, 1.0)

    assert True in pieces(out)
    assert run({"x": np.array([1.0], "float32")}, [out])[0] == 5
    assert run({"x": np.array([-1.0], "float32")}, [out])[0] == 1


def test_every_turn_of_a_recurrence_draws_its_own_numbers():
    x = data("x", 4, 1, 50)
    rnn = layers.StaticRNN()
    with rnn.step():
        rnn.step_output(layers.dropout(rnn.step_input(x), 0.5))
    out = rnn()
    (masks,) = run({"x": np.ones((4, 1, 50), "float32")}, [out])
    assert len({mask.tobytes() for mask in masks}) == 4


def test_control_flow_survives_clones_and_files():
    x = data("x", 2, 3)
    i, n = constant(0), constant(2)
    array = layers.array_write(x, i)
    going = layers.less_than(i, n)
    with layers.While(going).block():
        before = layers.array_read(array, i)
        layers.increment(i)
        layers.array_write(layers.tanh(before), i, array=array)
        layers.less_than(i, n, cond=going)
    out = layers.array_read(array, n)
    feed = {"x": np.ones((2, 3), "float32")}
    program = fluid.default_main_program()
    expected = np.tanh(np.tanh(feed["x"]))
    for copy in (program, program.clone(for_test=True), Program.parse_from_string(program_to_bytes(program))):
        np.testing.assert_allclose(run(feed, [out.name], copy)[0], expected, rtol=1e-6)


def test_programs_of_real_fluid_do_not_name_what_they_overwrite():
    x = data("x", 2)
    i, n, last = constant(1), constant(3), layers.fill_constant([2], "float32", 0.0)
    array = layers.array_write(x, constant(0))
    going = layers.less_than(i, n)
    with layers.While(going).block():
        layers.array_write(layers.scale(x, 2.0), i, array=array)
        with layers.Switch() as switch, switch.case(layers.less_than(i, constant(2))):
            layers.assign(layers.scale(x, 3.0), last)
        layers.increment(i)
        layers.less_than(i, n, cond=going)
    program = fluid.default_main_program()
    for op in (op for block in program.blocks for op in block.ops):
        op.inputs.pop("Array", None)
        for slot in ("X", "Input"):
            if slot in op.inputs and op.sub_blocks():
                op.inputs[slot] = [name for name in op.inputs[slot] if name not in (array.name, last.name)]

    loaded = Program.parse_from_string(program_to_bytes(program))
    value = np.array([1, 2], "float32")
    found, kept = run({"x": value}, [array.name, last.name], loaded)
    assert [each.tolist() for each in found] == [[1, 2], [2, 4], [2, 4]]
    assert kept.tolist() == [3, 6]


def test_nested_loops_and_branches():
    i, n = constant(0), constant(4)
    total = layers.fill_constant([1], "int64", 0)

    def body(i, total):
        even = layers.equal(layers.elementwise_mod(i, constant(2)), constant(0))
        return [i + 1, layers.cond(even, lambda: total + i, lambda: total * 10)]

    i, total = layers.while_loop(lambda i, total: layers.less_than(i, n), body, [i, total])
    assert pieces(total) == [False]
    assert run({}, [total])[0] == 20


def test_a_body_that_forgets_its_memory_is_told():
    rnn = layers.StaticRNN()
    with pytest.raises(ValueError, match="never updated"), rnn.step():
        word = rnn.step_input(data("x", 3, 2, 4))
        rnn.memory(shape=[-1, 4], batch_ref=word)
        rnn.step_output(word)


def test_the_condition_of_a_loop_is_one_boolean():
    with pytest.raises(TypeError, match="single boolean"):
        layers.While(layers.fill_constant([1], "float32", 1.0))
