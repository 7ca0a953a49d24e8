"""Differentiation of programs."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OpError


def run(fetch, feed):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe.run(feed=feed, fetch_list=fetch)


def variable(name, shape):
    x = fluid.layers.data(name, shape, append_batch_size=False)
    x.stop_gradient = False
    return x


def test_fan_out_is_summed_under_rename_names():
    x = variable("x", [3])
    loss = fluid.layers.reduce_sum(x * x + fluid.layers.scale(x, 3.0))
    fluid.backward.append_backward(loss)
    block = fluid.default_main_program().global_block()
    (total,) = [op for op in block.ops if op.type == "sum" and op.output("Out") == ["x@GRAD"]]
    assert sorted(total.input("X")) == [f"x@GRAD@RENAME@block0@{i}" for i in range(len(total.input("X")))]
    value = np.array([1.0, -2.0, 0.5], "float32")
    (gradient,) = run(["x@GRAD"], {"x": value})
    np.testing.assert_allclose(gradient, 2 * value + 3)


def test_stop_gradient_cuts_the_path():
    x = variable("x", [2])
    kept = fluid.layers.square(x)
    cut = fluid.layers.square(x)
    cut.stop_gradient = True
    fluid.backward.append_backward(fluid.layers.reduce_sum(kept + cut))
    (gradient,) = run(["x@GRAD"], {"x": np.array([1.0, 2.0], "float32")})
    np.testing.assert_allclose(gradient, [2.0, 4.0])


def test_gradients_with_given_target_gradients_and_no_grad_set():
    x, y = variable("x", [2]), variable("y", [2])
    product = x * y
    weight = fluid.layers.data("weight", [2], append_batch_size=False)
    gx, gy = fluid.gradients([product], [x, y], [weight], no_grad_set={"y"})
    assert gy is None
    feed = {"x": np.ones(2, "f"), "y": np.array([3, 4], "f"), "weight": np.array([10, 100], "f")}
    np.testing.assert_allclose(run([gx], feed)[0], [30, 400])


def test_gradients_of_gradients():
    x = variable("x", [3])
    cubed = x * x * x
    (first,) = fluid.gradients([cubed], [x])
    (second,) = fluid.gradients([first], [x])
    assert first.name != second.name
    value = np.array([1.0, 2.0, -3.0], "float32")
    one, two = run([first, second], {"x": value})
    np.testing.assert_allclose(one, 3 * value**2, rtol=1e-6)
    np.testing.assert_allclose(two, 6 * value, rtol=1e-6)


def test_two_backward_passes_do_not_mix():
    x = variable("x", [2])
    (a,) = fluid.gradients([fluid.layers.square(x)], [x])
    (b,) = fluid.gradients([fluid.layers.scale(x, 5.0)], [x])
    value = np.array([1.0, 3.0], "float32")
    first, second = run([a, b], {"x": value})
    np.testing.assert_allclose(first, 2 * value)
    np.testing.assert_allclose(second, [5.0, 5.0])


def test_parameters_that_do_not_matter_have_no_pair():
    x = fluid.layers.data("x", [4])
    used, unused = fluid.layers.fc(x, 1), fluid.layers.fc(x, 1)
    pairs = fluid.backward.append_backward(fluid.layers.mean(used))
    assert sorted(p.name for p, _ in pairs) == ["fc_0.b_0", "fc_0.w_0"]
    assert unused.shape == (-1, 1)


def test_a_parameter_list_may_name_plain_variables():
    x = variable("x", [2])
    pairs = fluid.backward.append_backward(fluid.layers.reduce_sum(fluid.layers.square(x)), parameter_list=["x"])
    assert [(p.name, g.name) for p, g in pairs] == [("x", "x@GRAD")]


def test_the_loss_must_have_one_element():
    x = variable("x", [2])
    with pytest.raises(ValueError, match=r"must have one element, but has shape \[2\]; take its mean"):
        fluid.backward.append_backward(fluid.layers.square(x))


def test_recomputation_gives_the_same_gradients_and_real_recomputation():
    def build(checkpointed):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 7
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x = fluid.layers.data("x", [8])
            hidden, checkpoints = x, []
            for _ in range(3):
                hidden = fluid.layers.dropout(
                    fluid.layers.fc(hidden, 8, act="tanh"), 0.4, dropout_implementation="upscale_in_train"
                )
                checkpoints.append(hidden)
            loss = fluid.layers.mean(hidden)
            optimizer = fluid.optimizer.SGD(0.5)
            if checkpointed:
                optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
                optimizer._set_checkpoints(checkpoints)
            optimizer.minimize(loss)
        return main, startup, loss

    losses = []
    for checkpointed in (False, True):
        main, startup, loss = build(checkpointed)
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        with fluid.scope_guard(scope):
            exe.run(startup)
            feed = {"x": np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8)}
            losses.append([exe.run(main, feed=feed, fetch_list=[loss])[0] for _ in range(5)])
        barriers = [op for op in main.global_block().ops if op.type == "recompute_barrier"]
        assert bool(barriers) == checkpointed
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


def test_an_error_in_a_gradient_op_names_the_forward_line():
    x = variable("x", [2])
    block = fluid.default_main_program().global_block()
    fluid.backward.append_backward(fluid.layers.reduce_sum(fluid.layers.square(x)))
    (op,) = [op for op in block.ops if op.type == "square_grad"]
    assert "fluid.layers.square(x)" in str(op.written_at)
    assert isinstance(op.error("broken"), OpError)
