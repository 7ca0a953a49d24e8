"""Print and py_func: what they write, what they call, and how gradients pass through them."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OpError


@pytest.fixture(autouse=True)
def fresh_programs():
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield


def run(fetch_list, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetch_list)


def data(name, shape, dtype="float32"):
    return fluid.layers.data(name, shape, append_batch_size=False, dtype=dtype, stop_gradient=False)


def output_like(x):
    block = fluid.default_main_program().current_block()
    return block.create_var(name=fluid.unique_name.generate("made"), shape=x.shape, dtype=x.dtype)


def test_print_writes_what_real_fluid_writes(capsys):
    x = data("x", [2, 3])
    y = fluid.layers.Print(x, message="hello")
    (value,) = run([y], x=np.array([[1, 2.5, -1e-7], [1e9, 1 / 3, 0]], "float32"))

    first, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith("\thello\tThe place is:CPUPlace")
    assert rest == ["Tensor[x]", "\tshape: [2,3,]", "\tdtype: f", "\tdata: 1,2.5,-1e-07,1e+09,0.333333,0,"]
    assert value.shape == (2, 3)


@pytest.mark.parametrize(
    ("dtype", "values", "letter", "text"),
    [
        ("int64", [1, 2**40], "l", "1,1099511627776,"),
        ("int32", [1, -2], "i", "1,-2,"),
        ("bool", [True, False], "b", "1,0,"),
        ("float64", [0.1, 2.0], "d", "0.1,2,"),
    ],
)
def test_print_knows_every_dtype(capsys, dtype, values, letter, text):
    y = fluid.layers.Print(data("x", [2], dtype))
    run([y], x=np.array(values, dtype))

    assert capsys.readouterr().out.splitlines()[3:] == [f"\tdtype: {letter}", f"\tdata: {text}"]


def test_print_leaves_out_what_is_not_wanted(capsys):
    x = data("x", [4])
    y = fluid.layers.Print(x, summarize=2, print_tensor_name=False, print_tensor_type=False, print_tensor_shape=False)
    run([y], x=np.arange(4, dtype="float32"))

    assert capsys.readouterr().out.splitlines()[1:] == ["\tdata: 0,1,"]


def test_print_stops_after_first_n_runs(capsys):
    y = fluid.layers.Print(data("x", [1]), first_n=2)
    executor = fluid.Executor(fluid.CPUPlace())
    for _ in range(3):
        executor.run(feed={"x": np.ones(1, "float32")}, fetch_list=[y])

    assert capsys.readouterr().out.count("Tensor[x]") == 2


@pytest.mark.parametrize(
    ("phase", "names"),
    [("forward", ["x"]), ("backward", ["print_x_0.tmp_0@GRAD"]), ("both", ["x", "print_x_0.tmp_0@GRAD"])],
)
def test_print_passes_the_gradient_on_and_prints_it(capsys, phase, names):
    x = data("x", [3])
    loss = fluid.layers.reduce_sum(fluid.layers.square(fluid.layers.Print(x, print_phase=phase)))
    (gradient,) = fluid.gradients([loss], [x])
    (value,) = run([gradient], x=np.array([1, 2, 3], "float32"))

    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Tensor[")]
    assert printed == [f"Tensor[{name}]" for name in names]
    np.testing.assert_array_equal(value, [2, 4, 6])


def test_print_refuses_an_unknown_phase():
    with pytest.raises(ValueError, match="print_phase must be forward, backward or both"):
        fluid.layers.Print(data("x", [3]), print_phase="sideways")


def test_py_func_runs_between_compiled_pieces_and_trains_through():
    x = data("x", [4, 3])
    hidden = fluid.layers.scale(x, 2.0)
    out = fluid.layers.py_func(
        lambda a: np.tanh(a),
        hidden,
        output_like(hidden),
        backward_func=lambda a, y, dy: np.array(dy) * (1 - np.array(y) ** 2),
    )
    loss = fluid.layers.reduce_sum(fluid.layers.scale(out, 3.0))
    (gradient,) = fluid.gradients([loss], [x])
    given = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
    value, slope = run([out, gradient], x=given)

    np.testing.assert_allclose(value, np.tanh(2 * given), rtol=1e-6)
    np.testing.assert_allclose(slope, 6 * (1 - np.tanh(2 * given) ** 2), rtol=1e-5)


def test_py_func_gives_the_functions_tensors_they_can_ask():
    seen = []

    def look(a):
        seen.append((type(a), a.shape(), a.lod()))
        return np.array(a)

    x = data("x", [2, 3])
    run([fluid.layers.py_func(look, x, output_like(x))], x=np.ones((2, 3), "float32"))

    assert seen == [(fluid.LoDTensor, [2, 3], [])]


def test_py_func_without_backward_function_stops_the_gradient():
    x = data("x", [3])
    straight = fluid.layers.scale(x, 2.0)
    around = fluid.layers.py_func(lambda a: np.array(a) * 5, x, output_like(x))
    loss = fluid.layers.reduce_sum(fluid.layers.elementwise_add(straight, around))
    (gradient,) = fluid.gradients([loss], [x])
    total, slope = run([loss, gradient], x=np.ones(3, "float32"))

    assert float(total[0]) == 21.0
    np.testing.assert_array_equal(slope, [2, 2, 2])


def test_py_func_backward_function_is_not_given_skipped_variables_nor_missing_gradients():
    x = data("x", [3])
    outs = [output_like(x), output_like(x)]
    given = []

    def backward(second, first_gradient, second_gradient):
        given.extend([np.array(second), first_gradient, np.array(second_gradient)])
        return np.array(second_gradient) * 7

    fluid.layers.py_func(
        lambda a: (np.array(a) + 1, np.array(a) * 7), x, outs, backward, skip_vars_in_backward_input=[x, outs[0]]
    )
    (gradient,) = fluid.gradients([fluid.layers.reduce_sum(outs[1])], [x])
    (slope,) = run([gradient], x=np.arange(3, dtype="float32"))

    np.testing.assert_array_equal(given[0], [0, 7, 14])
    assert given[1] is None
    np.testing.assert_array_equal(given[2], [1, 1, 1])
    np.testing.assert_array_equal(slope, [7, 7, 7])


def test_py_func_may_only_look():
    seen = []
    x = data("x", [3])
    fluid.layers.py_func(lambda a: seen.append(np.array(a).tolist()), x, None)
    run([fluid.layers.scale(x, 2.0)], x=np.arange(3, dtype="float32"))

    assert seen == [[0, 1, 2]]


def test_py_func_takes_functions_without_arguments():
    out = fluid.default_main_program().current_block().create_var(name="made", shape=[2], dtype="float32")
    (value,) = run([fluid.layers.py_func(lambda: np.array([3, 4], "float32"), None, out)])

    np.testing.assert_array_equal(value, [3, 4])


def test_py_func_explains_what_is_wrong():
    x = data("x", [3])
    with pytest.raises(TypeError, match="is not a function"):
        fluid.layers.py_func("tanh", x, output_like(x))
    with pytest.raises(ValueError, match="neither in x nor in out"):
        fluid.layers.py_func(np.tanh, x, output_like(x), lambda *a: a, skip_vars_in_backward_input=data("y", [3]))
    with pytest.raises(ValueError, match="made_by_hand needs a shape"):
        out = fluid.default_main_program().current_block().create_var(name="made_by_hand", dtype="float32")
        fluid.layers.py_func(np.tanh, x, out)
    fluid.layers.py_func(lambda a: (a, a), x, output_like(x))
    with pytest.raises(OpError, match="returned 2 values, but 1"):
        run([], x=np.ones(3, "float32"))


def test_py_func_functions_can_be_looked_up():
    x = data("x", [3])
    before = fluid.layers.py_func.registered_func_num()
    fluid.layers.py_func(np.tanh, x, output_like(x))

    assert fluid.layers.py_func.registered_func_num() == before + 1
    assert fluid.layers.py_func.registered_func(before) is np.tanh
