"""A pruned, a distilled and a quantised net: every step and every parameter is real Fluid's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from golden.compressed import CASES, compress

pytestmark = pytest.mark.filterwarnings("ignore:CPU_NUM is not set")


@cache
def _recorded() -> dict[str, dict[str, np.ndarray]]:
    by_case: dict[str, dict[str, np.ndarray]] = {}
    with np.load(Path(__file__).parent / "data" / "compressed.npz") as data:
        for key in data.files:
            case, _, what = key.partition("|")
            by_case.setdefault(case, {})[what] = data[key]
    return by_case


@pytest.mark.parametrize("case", CASES)
def test_a_compression_trains_as_in_real_fluid(case, tmp_path):
    expected = _recorded()[case]
    found = compress(fluid, case, str(tmp_path))
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
