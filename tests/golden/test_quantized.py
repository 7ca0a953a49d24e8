"""Quantised programs have the operators of real Fluid and compute its numbers; so does a small quantised MobileNet."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from golden.quantized import CALIBRATED, REWRITTEN, STORED, TRAINED, calibrate, rewrite, store, train

pytestmark = pytest.mark.filterwarnings("ignore::refluid.errors.RecompileWarning")  # programs are frozen in place


@cache
def _recorded() -> dict[str, dict[str, np.ndarray]]:
    by_case: dict[str, dict[str, np.ndarray]] = {}
    with np.load(Path(__file__).parent / "data" / "quantized.npz") as data:
        for key in data.files:
            case, _, what = key.partition("|")
            by_case.setdefault(case, {})[what] = data[key]
    return by_case


@pytest.mark.parametrize("case", TRAINED)
def test_a_quantised_mobilenet_trains_and_freezes_as_in_real_fluid(case):
    expected = _recorded()[case]
    programs, numbers = train(fluid, case)
    assert programs == {name: expected[name].tolist() for name in expected if not name.endswith("/value")}
    for name in ("losses", "rounded", "frozen"):
        np.testing.assert_allclose(numbers[name], expected[f"{name}/value"], rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(numbers["frozen"], numbers["rounded"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(numbers["weight"], expected["weight/value"])
    assert numbers["int8"].dtype == np.int8
    np.testing.assert_array_equal(numbers["int8"], numbers["weight"])


@pytest.mark.parametrize("case", REWRITTEN)
def test_a_pass_rewrites_the_operators_that_real_fluid_rewrites(case):
    programs = rewrite(fluid, case)
    assert programs == {which: _recorded()[case][which].tolist() for which in programs}


@pytest.mark.parametrize("case", CALIBRATED)
def test_a_model_is_quantised_after_training_as_in_real_fluid(case, tmp_path):
    expected = _recorded()[f"after training, {case}"]
    found = calibrate(fluid, case, str(tmp_path))
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("case", STORED)
def test_weights_are_stored_as_in_real_fluid(case, tmp_path):
    expected, found = _recorded()[f"stored, {case}"], store(fluid, case, str(tmp_path))
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        if value.dtype.kind == "f":
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], value, err_msg=name)
