"""refluid trains as real Fluid does: losses, parameters, optimizer states and update ops, step by step."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from golden import training
from golden.train_cases import GROUPS

HERE = Path(__file__).parent
CASES = [pytest.param(group, case, id=f"{group}/{case.name}") for group, cases in GROUPS.items() for case in cases]


@cache
def _recorded(group: str) -> dict[str, dict[str, np.ndarray]]:
    by_case: dict[str, dict[str, np.ndarray]] = {}
    with np.load(HERE / "data" / f"training_{group}.npz") as data:
        for key in data.files:
            case, _, what = key.partition("|")
            by_case.setdefault(case, {})[what] = data[key]
    return by_case


@pytest.mark.parametrize(("group", "case"), CASES)
def test_training(group, case):
    import paddle.fluid as fluid

    expected = _recorded(group).get(case.name)
    assert expected, f"{case.name} is not recorded: run tests/golden/record_training.py with real Fluid"
    actual = training.run(fluid, case)
    assert sorted(actual) == sorted(expected)
    skipped = {key for key, wanted in (("updates", case.ops), ("roles", case.roles)) if not wanted}
    for key in expected.keys() - skipped:
        compare(case, key, actual[key], expected[key])


def compare(case, key: str, actual: np.ndarray, expected: np.ndarray) -> None:
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected, err_msg=key)
        return
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), key
    scale = float(np.abs(expected).mean()) if expected.size else 0.0
    np.testing.assert_allclose(actual, expected, rtol=case.rtol, atol=case.rtol * scale, err_msg=key)
