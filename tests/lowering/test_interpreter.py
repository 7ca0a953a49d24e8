"""Which operators run by one call, and in which order the others come."""

from __future__ import annotations

import paddle.fluid as fluid
from refluid.lowering.interpreter import groups_together


def adam(name, beta1=0.9, rate="rate"):
    """An update of the parameter ``name``, as arguments for `append_op`."""
    state = {
        "Param": name,
        "Moment1": f"{name}1",
        "Moment2": f"{name}2",
        "Beta1Pow": f"{name}3",
        "Beta2Pow": f"{name}4",
    }
    inputs = {**state, "Grad": f"{name}5", "LearningRate": rate}
    return name, "adam", inputs, {f"{slot}Out": value for slot, value in state.items()}, {"beta1": beta1}


def scale(name, x, out):
    return name, "scale", {"X": x}, {"Out": out}, {}


def grouped(*ops):
    """The groups of a block of these, by their names."""
    block = fluid.Program().global_block()
    names = {}
    for name, type, inputs, outputs, attrs in ops:
        slots = [
            {s: block.create_var(name=v, shape=[1], dtype="float32") for s, v in x.items()} for x in (inputs, outputs)
        ]
        names[id(block.append_op(type, *slots, attrs))] = name
    return [" ".join(names[id(op)] for op in group) for group in groups_together(block.ops)]


def test_alike_ones_go_together():
    assert grouped(adam("a1"), adam("a2"), adam("a3", beta1=0.5), adam("a4", beta1=0.5)) == ["a1 a2", "a3 a4"]


def test_they_wait_for_each_other_while_nothing_else_depends_on_them():
    assert grouped(adam("a1"), scale("s1", "rate", "half"), adam("a2", rate="half")) == ["s1", "a1 a2"]


def test_whoever_reads_a_result_comes_afterwards():
    assert grouped(adam("a1"), scale("s1", "a1", "x"), adam("a2")) == ["a1", "s1", "a2"]


def test_whoever_overwrites_what_they_read_comes_afterwards():
    assert grouped(adam("a1"), scale("s1", "rate", "rate"), adam("a2")) == ["a1", "s1", "a2"]


def test_two_updates_of_one_variable_stay_in_order():
    assert grouped(adam("a1"), adam("a2"), adam("a1")) == ["a1 a2", "a1"]


def test_the_last_ones_are_not_forgotten():
    assert grouped(scale("s1", "x", "y"), adam("a1"), scale("s2", "y", "z")) == ["s1", "s2", "a1"]
