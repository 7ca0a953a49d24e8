"""Fused ops: what they refuse, padded batches, and how an old origin of a GRU is respected. Results: golden/."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from golden.case import f32
from refluid.ops.core import registry


def call(type, arguments, **attrs):
    """The outputs of one call of a rule, by slot."""
    listed = {slot: value if isinstance(value, list) else [value] for slot, value in arguments.items()}
    return registry.lookup(type).call(listed, attrs)


def append(type, inputs, outputs, **attrs):
    """Appends an op to the program; returns its outputs."""
    block = fluid.default_main_program().global_block()
    made = {slot: block.create_var(name=f"{type}_{slot}") for slot in outputs.split()}
    block.append_op(type=type, inputs=inputs, outputs=made, attrs=attrs)
    return list(made.values())


def sequences(rows, lengths):
    return fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())


def run(feed, fetch):
    return fluid.Executor().run(feed=feed, fetch_list=fetch, return_numpy=False)


def test_origin_mode_is_respected_although_real_fluid_ignores_it_on_a_cpu():
    x = fluid.layers.data("x", [4], lod_level=1)
    weights = [fluid.layers.assign(f32(4, 9)), fluid.layers.assign(f32(3, 9, salt=1))]
    (fused,) = append("fusion_gru", {"X": x, "WeightX": weights[0], "WeightH": weights[1]}, "Hidden", origin_mode=True)
    product = fluid.layers.mul(x, weights[0])
    (plain,) = append("gru", {"Input": product, "Weight": weights[1]}, "Hidden", origin_mode=True)
    got, expected = run({"x": sequences(f32(5, 4), [2, 3])}, [fused, plain])
    np.testing.assert_allclose(np.array(got), np.array(expected), rtol=1e-6)


def test_lengths_of_other_batches_do_not_change_a_sequence():
    x = fluid.layers.data("x", [4], lod_level=1)
    start = fluid.layers.data("start", [3])
    parameters = {"AttentionWeight": f32(7, 1), "LSTMWeight": f32(7, 12), "LSTMBias": f32(1, 12)}
    given = {slot: fluid.layers.assign(value) for slot, value in parameters.items()}
    hidden, _ = append("attention_lstm", {"X": x, "C0": start, **given}, "Hidden Cell")
    (pooled,) = append("fusion_seqpool_concat", {"X": [x, hidden]}, "Out", pooltype="SUM")
    rows, states = f32(30, 4), f32(3, 3)
    found = []
    for lengths in ([3, 5], [3, 5, 17], [3, 5, 0]):
        feed = {"x": sequences(rows[: sum(lengths)], lengths), "start": states[: len(lengths)]}
        found.append([np.array(each) for each in run(feed, [hidden, pooled])])
    for hidden_rows, sums in found[1:]:
        np.testing.assert_allclose(hidden_rows[:8], found[0][0], rtol=1e-5)
        np.testing.assert_allclose(sums[:2], found[0][1], rtol=1e-5)
        assert np.isfinite(sums).all()


MISTAKES = {
    "matrices of factors": ("fusion_squared_mat_sub", {"X": f32(2, 3, 4), "Y": f32(4, 2)}, {}, "must be matrices"),
    "two unary functions": (
        "fused_elemwise_activation",
        {"X": f32(3), "Y": f32(3)},
        {"functor_list": ["relu", "tanh"]},
        "one of elementwise_add, elementwise_mul and one of scale, relu, tanh, sigmoid, not",
    ),
    "a plain tensor": ("fusion_seqpool_concat", {"X": [f32(3, 2)]}, {}, "X must hold sequences"),
    "an even filter": ("conv_shift", {"X": f32(2, 5), "Y": f32(2, 4)}, {}, "must be odd and at most that of X"),
    "columns that are not there": (
        "partial_concat",
        {"X": [f32(2, 3)]},
        {"start_index": 2, "length": 2},
        "start_index 2 and length 2 name no columns of 3",
    ),
    "columns of other shapes": ("partial_sum", {"X": [f32(2, 3), f32(2, 4)]}, {}, "matrices of the same shape"),
    "memory without values": ("coalesce_tensor", {"Input": [f32(2)]}, {"dtype": 5}, "the outputs have no values"),
    "one dim twice": ("diag_embed", {"Input": f32(3)}, {"dim1": 1, "dim2": -1}, "dim1 1 and dim2 -1 are the same dim"),
    "different shapes": ("allclose", {"Input": f32(3), "Other": f32(2, 3)}, {}, "tensors of the same shape"),
    "an unknown reduction": (
        "nll_loss",
        {"X": f32(2, 3), "Label": np.array([0, 1])},
        {"reduction": "most"},
        "reduction must be none, mean or sum, not 'most'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told(mistake):
    type, arguments, attrs, message = MISTAKES[mistake]
    with pytest.raises((ValueError, TypeError), match=message):
        call(type, arguments, **attrs)


@pytest.mark.parametrize(
    ("type", "attrs", "message"),
    [
        (
            "fusion_seqpool_concat",
            {"pooltype": "MAX"},
            "pooltype must be SUM, AVERAGE or SQRT, and axis 1, not MAX and 1",
        ),
        ("fusion_seqpool_concat", {"axis": 0}, "not SUM and 0"),
        ("fused_embedding_seq_pool", {"combiner": "mean"}, "combiner must be sum, not mean"),
    ],
)
def test_what_cannot_be_pooled_is_told(type, attrs, message):
    x = fluid.layers.data("x", [1], dtype="int64" if "embedding" in type else "float32", lod_level=1)
    inputs = {"Ids": x, "W": fluid.layers.assign(f32(3, 2))} if "embedding" in type else {"X": [x]}
    with pytest.raises(ValueError, match=message):
        append(type, inputs, "Out", **attrs)


def test_an_activation_that_cannot_be_undone_is_refused():
    x = fluid.layers.data("x", [3, 2, 2])
    with pytest.raises(ValueError, match="inplace_abn: act must be identity, leaky_relu or elu, not relu"):
        fluid.layers.inplace_abn(x, act="relu")
    with pytest.raises(ValueError, match="which can be undone, not relu"):
        arguments = {slot: np.ones(3, "float32") for slot in ("Scale", "Bias", "Mean", "Variance")}
        call("inplace_abn", {"X": f32(2, 3), **arguments}, activation="relu")


def test_ops_about_memory_and_devices_change_nothing():
    x = fluid.layers.data("x", [2])
    block = fluid.default_main_program().global_block()
    block.append_op(type="delete_var", inputs={"X": [x]})
    with pytest.warns(DeprecationWarning, match="get_places is deprecated since Fluid 0.15"):
        places = fluid.layers.device.get_places()
    assert (places.name, block.ops[-1].type) == ("get_places_0.out_0", "get_places")
    (out,) = run({"x": np.ones((1, 2), "float32")}, [fluid.layers.scale(x, 2.0)])
    np.testing.assert_array_equal(np.array(out), [[2, 2]])


@pytest.mark.parametrize(("flag", "expected"), [(True, 2.0), (False, 1.0)])
def test_a_branch_of_an_inference_program_is_taken_or_not(flag, expected):
    x = fluid.layers.fill_constant([1], "float32", 1.0)
    chosen = fluid.layers.data("chosen", [1], dtype="bool", append_batch_size=False)
    branch = fluid.layers.ConditionalBlock([chosen], is_scalar_condition=True)
    with branch.block():
        fluid.layers.assign(fluid.layers.scale(x, 2.0), x)
    (op,) = (op for op in fluid.default_main_program().global_block().ops if op.type == "conditional_block")
    op.type = "conditional_block_infer"
    (out,) = run({"chosen": np.array([flag])}, [x])
    assert np.array(out).item() == expected
