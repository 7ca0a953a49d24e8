"""What is compiled belongs to a program, what is bound to a scope, and neither outlives its owner."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import RecompileWarning


def regression():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [3])
        loss = fluid.layers.mean(fluid.layers.fc(x, 1))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return main, startup, loss.name


def batch(size=4):
    return {"x": np.arange(size * 3, dtype="float32").reshape(size, 3)}


def loop():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        i, n = (fluid.layers.fill_constant([1], "int64", value) for value in (0, 3))
        total = fluid.layers.fill_constant([1], "float32", 0.0)
        going = fluid.layers.less_than(i, n)
        loop = fluid.layers.While(going)
        with loop.block():
            fluid.layers.assign(total + 2.0, total)
            fluid.layers.increment(i)
            fluid.layers.less_than(i, n, cond=going)
    return main, startup, total.name


def test_a_program_compiles_once_however_many_scopes_it_runs_in():
    main, startup, loss = regression()
    startup.random_seed = 5
    exe = fluid.Executor(fluid.CPUPlace())
    losses = []
    for _ in range(4):
        scope = fluid.Scope()
        exe.run(startup, scope=scope)
        losses.append([exe.run(main, feed=batch(), fetch_list=[loss], scope=scope)[0].item() for _ in range(3)])
    assert exe.compilations == 2
    assert losses == [losses[0]] * 4
    assert len(set(losses[0])) == 3


def test_executors_of_one_place_share_what_is_compiled():
    main, startup, loss = regression()
    first, second = fluid.Executor(fluid.CPUPlace()), fluid.Executor(fluid.CPUPlace())
    first.run(startup)
    before = first.run(main, feed=batch(), fetch_list=[loss])[0]
    assert second.run(main, feed=batch(), fetch_list=[loss])[0] < before
    assert (first.compilations, second.compilations) == (2, 0)


def test_scopes_whose_state_has_other_shapes_check_ids_against_their_own_tables():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64")
        found = fluid.layers.embedding(ids, [8, 2], param_attr="table")
    exe = fluid.Executor(fluid.CPUPlace())
    scopes = {rows: fluid.Scope() for rows in (4, 8)}
    for rows, scope in scopes.items():
        scope.var("table").get_tensor().set(np.full((rows, 2), rows, "float32"), fluid.CPUPlace())
        exe.run(main, feed={"ids": np.array([[3]])}, fetch_list=[found], scope=scope)
    assert exe.run(main, feed={"ids": np.array([[7]])}, fetch_list=[found], scope=scopes[8])[0][0, 0] == 8
    with pytest.raises(fluid.core.EnforceNotMet, match=r"id 7 .* is not in \[0, 4\)"):
        exe.run(main, feed={"ids": np.array([[7]])}, fetch_list=[found], scope=scopes[4])


@pytest.mark.parametrize("return_numpy", [True, False])
def test_a_dropped_scope_is_collected(return_numpy):
    main, startup, loss = regression()
    exe = fluid.Executor(fluid.CPUPlace())
    scope = fluid.Scope()
    exe.run(startup, scope=scope)
    for _ in range(3):
        exe.run(main, feed=batch(), fetch_list=[loss], scope=scope, return_numpy=return_numpy)
    dropped = weakref.ref(scope)
    held = weakref.ref(scope.find_var("fc_0.w_0").get_tensor().value)
    del scope
    gc.collect()
    assert dropped() is None
    assert held() is None
    exe.run(startup, scope=fluid.Scope())
    assert exe.compilations == 2


@pytest.mark.parametrize("build", [regression, loop])
def test_a_dropped_program_is_collected(build):
    exe = fluid.Executor(fluid.CPUPlace())
    main, startup, fetched = build()
    exe.run(startup)
    for _ in range(3):
        exe.run(main, feed=batch() if build is regression else {}, fetch_list=[main.global_block().var(fetched)])
    dropped = weakref.ref(main)
    del main, startup
    gc.collect()
    assert dropped() is None


@pytest.mark.filterwarnings(f"ignore::{RecompileWarning.__module__}.RecompileWarning")
def test_a_program_keeps_a_bounded_number_of_compiled_steps(monkeypatch):
    monkeypatch.setattr("refluid.lowering.lowered.MOST_STEPS", 4)
    main, startup, loss = regression()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    for size in (1, 2, 3, 4, 5, 6):
        exe.run(main, feed=batch(size), fetch_list=[loss])
    assert len(main.lowered.steps) == 4
    gc.collect()
    for size in (1, 6):
        exe.run(main, feed=batch(size), fetch_list=[loss])
    assert exe.compilations == 1 + 6 + 1, "the step for one row was evicted and compiled again"
