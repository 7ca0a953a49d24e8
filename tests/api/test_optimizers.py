"""Optimizers, clipping and decay as scripts meet them: old and new ways of saying things, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid


@pytest.fixture(autouse=True)
def _fresh_programs():
    main, startup = fluid.Program(), fluid.Program()
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield


def regression(width: int = 1, **attrs):
    """A loss on inputs x of four columns."""
    x = fluid.layers.data("x", [4])
    return fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, width, **attrs)))


def update_types() -> list[str]:
    """The types of ops that an optimizer appended."""
    return [op.type for op in fluid.default_main_program().global_block().ops if op.attrs["op_role"] & 2]


def train(loss, steps: int = 5, seed: int = 0) -> list[float]:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    rng = np.random.RandomState(seed)
    batch = {"x": rng.uniform(-1, 1, (8, 4)).astype("float32")}
    return [float(exe.run(feed=batch, fetch_list=[loss])[0][0]) for _ in range(steps)]


def test_minimize_returns_update_ops_and_pairs():
    ops, pairs = fluid.optimizer.SGD(0.1).minimize(regression())
    assert [op.type for op in ops] == ["sgd", "sgd"]
    assert [(p.name, g.name) for p, g in pairs] == [
        ("fc_0.w_0", "fc_0.w_0@GRAD"),
        ("fc_0.b_0", "fc_0.b_0@GRAD"),
    ]


def test_states_are_named_after_parameters():
    optimizer = fluid.optimizer.Adam(0.1)
    optimizer.minimize(regression(bias_attr=False))
    assert optimizer.get_opti_var_name_list() == [
        "fc_0.w_0_moment1_0",
        "fc_0.w_0_moment2_0",
        "fc_0.w_0_beta1_pow_acc_0",
        "fc_0.w_0_beta2_pow_acc_0",
        "learning_rate_0",
    ]


def test_the_learning_rate_can_be_looked_up_and_set():
    optimizer = fluid.optimizer.SGD(0.5)
    loss = regression(bias_attr=False)
    optimizer.minimize(loss)
    assert optimizer._global_learning_rate().name == "learning_rate_0"
    first, second = train(loss, 2)
    assert second < first
    fluid.global_scope().find_var("learning_rate_0").get_tensor().set(np.zeros(1, "float32"), fluid.CPUPlace())
    exe = fluid.Executor(fluid.CPUPlace())
    batch = {"x": np.ones((8, 4), "float32")}
    third, fourth = (exe.run(feed=batch, fetch_list=[loss])[0] for _ in range(2))
    np.testing.assert_array_equal(third, fourth)


def test_clip_can_be_given_to_minimize_as_in_1_5():
    fluid.optimizer.SGD(0.1).minimize(regression(), grad_clip=fluid.clip.GradientClipByValue(1.0))
    assert update_types() == ["clip", "clip", "sgd", "sgd"]


def test_clip_can_be_given_to_a_parameter_as_in_1_5():
    attr = fluid.ParamAttr(gradient_clip=fluid.clip.GradientClipByNorm(1.0))
    fluid.optimizer.SGD(0.1).minimize(regression(param_attr=attr))
    assert update_types() == ["clip_by_norm", "sgd", "sgd"]


def test_set_gradient_clip_reaches_only_the_named_parameters():
    loss = regression()
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(1.0), param_list=["fc_0.b_0"])
    fluid.optimizer.SGD(0.1).minimize(loss)
    clips = [op for op in fluid.default_main_program().global_block().ops if op.type == "clip"]
    assert [op.input("X") for op in clips] == [["fc_0.b_0@GRAD"]]


def test_the_optimizers_clip_goes_before_the_parameters():
    loss = regression()
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(1.0))
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByNorm(1.0)).minimize(loss)
    assert update_types() == ["clip_by_norm", "clip_by_norm", "sgd", "sgd"]


def test_a_global_norm_group_has_one_norm():
    loss = regression()
    for name, norm in (("fc_0.w_0", 1.0), ("fc_0.b_0", 2.0)):
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(norm), param_list=[name])
    with pytest.raises(ValueError, match=r"conflicting values of clip_norm: 2\.0 and 1\.0"):
        fluid.optimizer.SGD(0.1).minimize(loss)


def test_two_programs_share_an_optimizer_only_through_numbers():
    optimizer = fluid.optimizer.SGD(0.1)
    for _ in range(2):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            optimizer.minimize(regression())
    assert len(optimizer._learning_rate_map) == 2


def test_old_programs_without_beta_power_outputs_train_alike():
    """1.5 leaves Beta1PowOut and Beta2PowOut away and advances the powers by scale ops."""
    runs = []
    for old in (False, True):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            loss = regression(param_attr=fluid.initializer.Constant(0.5))
            fluid.optimizer.Adam(0.1).minimize(loss)
            block = main.global_block()
            for op in [op for op in block.ops if op.type == "adam" and old]:
                for slot, attr in (("Beta1Pow", "beta1"), ("Beta2Pow", "beta2")):
                    del op.outputs[slot + "Out"]
                    power = {"X": op.input(slot)}, {"Out": op.input(slot)}
                    block.append_op(type="scale", inputs=power[0], outputs=power[1], attrs={"scale": op.attr(attr)})
            runs.append(train(loss))
    np.testing.assert_allclose(*runs, rtol=1e-6)


def test_dgc_compresses_large_gradients_and_still_learns():
    loss = regression(width=5000, bias_attr=False, param_attr=fluid.initializer.Constant(0.1))
    optimizer = fluid.optimizer.DGCMomentumOptimizer(
        500.0, 0.5, rampup_begin_step=2, rampup_step=2, sparsity=[0.75, 0.9]
    )
    optimizer.minimize(loss)
    types = [op.type for op in fluid.default_main_program().global_block().ops]
    assert types[0] == "increment"
    assert types[-2:] == ["dgc", "dgc_momentum"]
    losses = train(loss, 8)
    assert losses[-1] < 0.5 * losses[0]


def test_dgc_leaves_small_gradients_to_momentum():
    fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, rampup_begin_step=0).minimize(regression())
    assert update_types() == ["momentum", "momentum"]


def test_an_average_can_be_applied_twice():
    """Real Fluid divides the stored average by 1 - decay^updates at each application."""
    loss = regression(bias_attr=False)
    fluid.optimizer.SGD(0.1).minimize(loss)
    average = fluid.optimizer.ExponentialMovingAverage(0.9)
    average.update()
    train(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
    seen = []
    for _ in range(2):
        with average.apply(exe):
            seen.append(np.array(scope.find_var("fc_0.w_0").get_tensor()))
    np.testing.assert_array_equal(*seen)


def test_without_restore_parameters_keep_their_averages():
    loss = regression(bias_attr=False)
    fluid.optimizer.SGD(0.1).minimize(loss)
    average = fluid.optimizer.ModelAverage(0.5, min_average_window=2, max_average_window=10)
    train(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
    own = np.array(scope.find_var("fc_0.w_0").get_tensor())
    with average.apply(exe, need_restore=False):
        pass
    assert not np.array_equal(own, scope.find_var("fc_0.w_0").get_tensor())
    average.restore(exe)
    np.testing.assert_array_equal(own, scope.find_var("fc_0.w_0").get_tensor())


def test_mistakes_are_told_early():
    with pytest.raises(TypeError, match="learning_rate must be a number, a variable or a schedule, not str"):
        fluid.optimizer.SGD("0.1")
    with pytest.raises(TypeError, match="grad_clip must be a GradientClipByValue"):
        fluid.optimizer.SGD(0.1, grad_clip=1.0)
    with pytest.raises(TypeError, match="clip must be a GradientClipByValue"):
        fluid.clip.set_gradient_clip(1.0)
    with pytest.raises(TypeError, match="minimize expects the loss variable, not float"):
        fluid.optimizer.SGD(0.1).minimize(1.0)
    with pytest.raises(ValueError, match=r"must have shape \[1\], but fc_0.tmp_1 has \[-1, 3\]; take its mean"):
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.fc(fluid.layers.data("x", [4]), 3))
    with pytest.raises(ValueError, match="k must be a positive integer"):
        fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), k=0)
    with pytest.raises(ValueError, match="alpha must be between 0 and 1"):
        fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), alpha=2.0)
    with pytest.raises(TypeError, match="PipelineOptimizer expects a fluid.optimizer.Optimizer, not int"):
        fluid.optimizer.PipelineOptimizer(3)
    with pytest.raises(ValueError, match="place_list has 2 entries; 2 cuts make 3 sections, forward and backward"):
        fluid.optimizer.PipelineOptimizer(fluid.optimizer.SGD(0.1), [[], []], [fluid.CPUPlace()] * 2)
    with pytest.raises(ValueError, match="GradientMergeOptimizer requires an inner optimizer"):
        fluid.optimizer.GradientMergeOptimizer(None)
    with pytest.raises(ValueError, match="one more value than boundaries, got 2 and 2"):
        fluid.layers.piecewise_decay([1, 2], [0.1, 0.2])


def _losses_of_a_small_model(optimizer_of):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        fluid.default_startup_program().random_seed = 4
        x = fluid.layers.data("x", [4])
        hidden = fluid.layers.fc(x, 3, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 1)))
        optimizer_of(hidden, loss).minimize(loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        feed = {"x": np.ones((2, 4), np.float32)}
        return [executor.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(4)]


def test_sections_of_a_pipeline_have_the_numbers_of_the_whole_program():
    def pipeline(hidden, loss):
        places = [fluid.CPUPlace()] * 3
        return fluid.optimizer.PipelineOptimizer(fluid.optimizer.SGD(0.1), [[hidden], [loss]], places, [1, 1, 1])

    expected = _losses_of_a_small_model(lambda *_: fluid.optimizer.SGD(0.1))
    with pytest.warns(UserWarning, match="sections of the program run one after the other on one device"):
        assert _losses_of_a_small_model(pipeline) == expected
    with pytest.raises(ValueError, match="cut_list: fc_0.tmp_2 is not computed after the cuts before it"):
        _losses_of_a_small_model(
            lambda hidden, loss: fluid.optimizer.PipelineOptimizer(fluid.optimizer.SGD(0.1), [[loss], [hidden]])
        )


def test_gradients_of_several_batches_are_one_update():
    alone = _losses_of_a_small_model(lambda *_: fluid.optimizer.SGD(0.1))
    merged = _losses_of_a_small_model(
        lambda *_: fluid.optimizer.GradientMergeOptimizer(fluid.optimizer.SGD(0.1), k_steps=2)
    )
    np.testing.assert_allclose(merged, [alone[0], alone[0], alone[1], alone[1]], rtol=1e-6)


def test_recompute_asks_for_checkpoints():
    optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    with pytest.raises(ValueError, match="_set_checkpoints"):
        optimizer.minimize(regression())


def test_a_schedule_of_another_program_is_refused():
    optimizer = fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 10, 0.9))
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        pytest.raises(ValueError, match="belongs to a different program than the loss"),
    ):
        optimizer.minimize(regression())


def test_an_optimizer_that_knows_no_sparse_gradients_names_the_embedding():
    ids = fluid.layers.data("ids", [1], dtype="int64")
    loss = fluid.layers.mean(fluid.layers.embedding(ids, [5, 2], is_sparse=True))
    with pytest.raises(ValueError, match="takes no sparse gradient"):
        fluid.optimizer.LarsMomentum(0.1, 0.9).minimize(loss)
