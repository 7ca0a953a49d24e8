"""Dispatchers: who holds which slice."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid
from paddle.fluid.transpiler.ps_dispatcher import HashName, PSDispatcher, RoundRobin
from programs_to_distribute import FIRST, SECOND, config, regression, transpile


class Named:
    def __init__(self, name):
        self.name = name


def test_round_robin_goes_on_where_it_was_until_it_is_reset():
    dispatcher = RoundRobin(["a:1", "b:2", "c:3"])
    assert dispatcher.dispatch([Named(i) for i in range(5)]) == ["a:1", "b:2", "c:3", "a:1", "b:2"]
    assert dispatcher.dispatch([Named("x")]) == ["c:3"]
    dispatcher.reset()
    assert dispatcher.dispatch([Named("x")]) == ["a:1"]


def test_hash_name_gives_the_same_in_every_process():
    dispatcher = HashName(["a:1", "b:2", "c:3"])
    names = ["fc_0.w_0.block0", "fc_0.w_0.block1", "fc_0.b_0", "emb"]
    assert dispatcher.dispatch([Named(name) for name in names]) == ["a:1", "a:1", "a:1", "b:2"]


def placed(transpiler):
    return {placed.param: tuple(placed.endpoints) for placed in transpiler.placement.params}


@pytest.mark.parametrize("given", [None, RoundRobin])
def test_slices_go_round(given):
    regression(size=2)
    transpiler = transpile(config(split_method=given))
    assert placed(transpiler) == {"fc_0.b_0": (FIRST,), "fc_0.w_0": (SECOND, FIRST)}


def test_whole_parameters_are_spread_by_size():
    hidden = fluid.layers.data("x", [20])
    for _ in range(4):
        hidden = fluid.layers.fc(hidden, 20)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(hidden))
    transpiler = transpile(config(slice_var_up=False))
    held = {FIRST: [], SECOND: []}
    for each in transpiler.placement.params:
        held[each.endpoints[0]].append(each.param)
    assert held == {
        FIRST: ["fc_0.b_0", "fc_0.w_0", "fc_2.b_0", "fc_2.w_0"],
        SECOND: ["fc_1.b_0", "fc_1.w_0", "fc_3.b_0", "fc_3.w_0"],
    }


def test_a_dispatcher_of_ones_own_sees_the_slices_of_one_parameter_after_the_other():
    seen = []

    class Last(PSDispatcher):
        def dispatch(self, varlist):
            seen.append([(v.name, v.shape) for v in varlist])
            return [self.eps[-1]] * len(varlist)

    regression(size=2)
    transpiler = transpile(config(split_method=Last))
    assert set(placed(transpiler).values()) == {(SECOND,), (SECOND, SECOND)}
    assert seen == [[("fc_0.b_0", (2,))], [("fc_0.w_0.block0", (4, 2)), ("fc_0.w_0.block1", (4, 2))]]


def test_a_dispatcher_that_does_not_fit_is_told():
    class Short(PSDispatcher):
        def dispatch(self, varlist):
            return self.eps[:1]

    class Strange(PSDispatcher):
        def dispatch(self, varlist):
            return ["elsewhere:1"] * len(varlist)

    regression(size=2)
    with pytest.raises(ValueError, match="Short.dispatch gave 1 endpoints for the 2 slices of fc_0.w_0"):
        transpile(config(split_method=Short))
    with pytest.raises(ValueError, match="Strange.dispatch placed fc_0.b_0 on 'elsewhere:1'"):
        transpile(config(split_method=Strange))
    with pytest.raises(TypeError, match="split_method must be a class derived from PSDispatcher"):
        transpile(config(split_method="RoundRobin"))
    with pytest.raises(NotImplementedError, match="override dispatch"):
        transpile(config(split_method=PSDispatcher))
