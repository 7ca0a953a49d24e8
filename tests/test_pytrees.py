"""Parameters as trees of arrays, and back."""

import jax
import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid.errors import UninitializedError
from refluid.pytrees import nested, paths


def model():
    x = fluid.layers.data("x", [3])
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.fc(x, 2), 1, param_attr="fc_0", bias_attr=False))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return fluid.default_main_program()


def started():
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())


def value(name):
    return np.array(fluid.global_scope().find_var(name).get_tensor())


def test_names_are_cut_at_their_dots():
    assert paths(["a.b", "a.c.d", "e"]) == {"a.b": ("a", "b"), "a.c.d": ("a", "c", "d"), "e": ("e",)}
    assert nested({("a", "b"): 1, ("a", "c", "d"): 2}) == {"a": {"b": 1, "c": {"d": 2}}}


def test_a_name_that_another_one_begins_with_stays_whole():
    assert paths(["a", "a.b", "c.d"]) == {"a": ("a",), "a.b": ("a.b",), "c.d": ("c", "d")}


def test_parameters_leave_and_return():
    program = model()
    with pytest.raises(UninitializedError, match="run the startup program first"):
        refluid.to_pytree(program)
    started()
    tree = refluid.to_pytree(program)
    assert jax.tree.map(np.shape, tree) == {"fc_0.w_0": (3, 2), "fc_0.b_0": (2,), "fc_0": (2, 1)}
    everything = refluid.to_pytree(program, persistables=True)
    assert len(jax.tree.leaves(everything)) == 3 + 3 + 1  # velocities, and the learning rate
    doubled = jax.tree.map(lambda array: 2 * array, tree)
    refluid.from_pytree(doubled, program)
    np.testing.assert_array_equal(value("fc_0.w_0"), doubled["fc_0.w_0"])


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({"other": {"w": np.zeros(1)}}, "no persistable variable other.w"),
        ({"fc_0": np.zeros((2, 2), "float32")}, r"fc_0 is float32\[2, 1\] in the program, but float32\[2, 2\] in the"),
        ({"fc_0": np.zeros((2, 1))}, r"but float64\[2, 1\] in the tree"),
    ],
)
def test_a_tree_that_does_not_fit_changes_nothing(tree, problem):
    program = model()
    started()
    before = value("fc_0.b_0")
    with pytest.raises(ValueError, match=problem):
        refluid.from_pytree({"fc_0.b_0": before + 1, **tree}, program)
    np.testing.assert_array_equal(value("fc_0.b_0"), before)
