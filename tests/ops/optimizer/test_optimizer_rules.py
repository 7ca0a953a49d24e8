"""What golden recordings cannot show: old forms of ops, noise, compression."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from refluid.ops.core.registry import lookup


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def array(*values: float):
    return jnp.asarray(values, jnp.float32)


def test_dpsgd_adds_independent_noise_of_the_asked_size():
    param = jnp.zeros((100, 100), jnp.float32)
    given = {"Param": [param], "Grad": [param], "LearningRate": [array(1.0)]}
    attrs = {"clip": 1.0, "batch_size": 4.0, "sigma": 2.0}
    moved = np.asarray(lookup("dpsgd").call(given, attrs, key=jax.random.key(0))["ParamOut"][0])
    assert abs(moved.std() - 2.0 / 4.0) < 0.02
    assert abs(moved.mean()) < 0.02


def test_dpsgd_with_a_seed_repeats_its_noise():
    param = jnp.zeros((5,), jnp.float32)
    given = {"Param": [param], "Grad": [param], "LearningRate": [array(1.0)]}
    runs = [lookup("dpsgd").call(given, {"seed": 7}, key=jax.random.key(key))["ParamOut"][0] for key in (0, 1)]
    np.testing.assert_array_equal(*runs)


def dgc(step: float, **attrs):
    """One step of dgc on ten elements, the largest of which are the last."""
    zero, grad = jnp.zeros((10,), jnp.float32), jnp.arange(1, 11, dtype=jnp.float32)
    given = {"U": [zero], "V": [zero], "Grad": [grad], "current_step": [array(step)], "nranks": [array(-1.0)]}
    attrs = {
        "m": 0.5,
        "use_nesterov": False,
        "sparsity": [0.5, 0.8],
        "rampup_begin_step": 3.0,
        "rampup_step": 4.0,
        **attrs,
    }
    return {slot: np.asarray(value[0]) for slot, value in lookup("dgc").call(given, attrs).items()}


def test_dgc_leaves_gradients_alone_before_it_begins():
    outputs = dgc(step=2)
    np.testing.assert_array_equal(outputs["Grad_out"], np.arange(1, 11))
    assert not outputs["U_out"].any() and not outputs["V_out"].any()


@pytest.mark.parametrize(("step", "passed"), [(3, 5), (4, 5), (5, 2), (50, 2)])
def test_dgc_passes_fewer_elements_as_it_ramps_up(step, passed):
    outputs = dgc(step)
    assert outputs["k"] == [passed]
    assert np.count_nonzero(outputs["Grad_out"]) == passed
    assert (outputs["Grad_out"] != 0).tolist() == [False] * (10 - passed) + [True] * passed


def test_dgc_keeps_what_it_does_not_pass_on():
    outputs = dgc(step=5)
    np.testing.assert_allclose(outputs["Grad_out"] + outputs["V_out"], np.arange(1, 11))
    np.testing.assert_allclose(outputs["U_out"], outputs["V_out"])


def test_dgc_regularizes_what_it_accumulates():
    plain, decayed = (
        lookup("dgc").call(
            {
                "U": [array(0, 0)],
                "V": [array(0, 0)],
                "Grad": [array(1, 2)],
                "Param": [array(4, -4)],
                "current_step": [array(0.0)],
                "nranks": [array(1.0)],
            },
            {"use_nesterov": False, "sparsity": [0.0], "regular_type": kind, "regular_coeff": 0.5},
        )["Grad_out"][0]
        for kind in (0, 2)
    )
    np.testing.assert_allclose(decayed - plain, [2.0, -2.0])
