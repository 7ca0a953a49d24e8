"""refluid gives real Fluid's answers: outputs, gradients, inferred shapes, op lists, on every golden case."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

from golden import runner
from golden.case import case_ids

HERE = Path(__file__).parent
FAMILIES = sorted(path.stem for path in (HERE / "cases").glob("[a-z]*.py"))


def _cases():
    only = os.environ.get("GOLDEN")
    for family in FAMILIES:
        if only and family not in only.split(","):
            continue
        cases = importlib.import_module(f"golden.cases.{family}").CASES
        for name, case in zip(case_ids(cases), cases, strict=True):
            yield pytest.param(family, name, case, id=f"{family}/{name}")


_recordings: dict[str, dict[str, dict[str, np.ndarray]]] = {}


def recording(family: str, name: str) -> dict[str, np.ndarray]:
    """What real Fluid answered to one case."""
    if family not in _recordings:
        by_case: dict[str, dict[str, np.ndarray]] = {}
        with np.load(HERE / "data" / f"{family}.npz") as data:
            for key in data.files:
                case, _, what = key.partition("|")
                by_case.setdefault(case, {})[what] = data[key]
        _recordings[family] = by_case
    return _recordings[family].get(name, {})


@pytest.mark.parametrize(("family", "name", "case"), list(_cases()))
def test_case(family, name, case):
    import paddle.fluid as fluid

    expected = recording(family, name)
    assert expected, f"{family}/{name} is not recorded: run tests/golden/record.py with real Fluid"
    actual = runner.run(fluid, case)
    # Some gradients lose their LoD in real Fluid, depending on kernels; nobody asks a gradient for it.
    expected = {key: value for key, value in expected.items() if not _is_lod_of_gradient(key)}
    actual = {key: value for key, value in actual.items() if not _is_lod_of_gradient(key)}
    assert _compared(case, actual) == _compared(case, expected)
    for key, value in expected.items():
        if key in _compared(case, expected):
            compare(case, key, actual[key], value)


def _compared(case, results) -> list[str]:
    """The keys of what a case compares; older recordings have scratch outputs too."""
    return sorted(key for key in results if not _is_skipped(case, key))


def _is_skipped(case, key: str) -> bool:
    return key.partition("/")[2].split("_out_")[0] in case.skip


def _is_lod_of_gradient(key: str) -> bool:
    return key.startswith("lod") and key.endswith("@GRAD")


def compare(case, key: str, actual: np.ndarray, expected: np.ndarray) -> None:
    kind = key.partition("/")[0]
    if kind not in ("out", "grad"):
        np.testing.assert_array_equal(actual, expected, err_msg=key)
        return
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), key
    if case.check == "shapes":
        return
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected, err_msg=key)
        return
    finite = np.abs(expected[np.isfinite(expected)])
    scale = float(finite.mean()) if finite.size else 0.0
    np.testing.assert_allclose(actual, expected, rtol=case.rtol, atol=case.rtol * scale, err_msg=key)
