"""Models with the operators that real Fluid's passes have fused load here and predict the same.

The files were made by interchange/optimized_models.py.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.ir import Program

HERE = Path(__file__).parent

sys.path.insert(0, str(HERE / "interchange"))
import optimized_models  # noqa: E402
import save_and_run  # noqa: E402

sys.path.pop(0)


@pytest.mark.parametrize("build", optimized_models.MODELS, ids=lambda build: build.__name__)
def test_an_optimized_model_of_real_fluid_predicts_the_same(build, tmp_path):
    folder = tmp_path / f"optimized_{build.__name__}"
    with zipfile.ZipFile(HERE / "fixtures" / f"{folder.name}.zip") as packed:
        packed.extractall(folder)
    program = Program.parse_from_string((folder / "__model__").read_bytes())
    assert set(optimized_models.MODELS[build][0]) <= {op.type for op in program.global_block().ops}

    got = save_and_run.run(fluid, str(folder), save_and_run.read_feeds(folder))
    values = save_and_run.read_values(folder / "data.npz")
    expected = [values[f"output_{i}"] for i in range(len(got))]
    assert f"output_{len(got)}" not in values
    for mine, theirs in zip(got, expected, strict=True):
        assert isinstance(mine, tuple) == isinstance(theirs, tuple)
        if isinstance(mine, tuple):
            assert mine[1] == theirs[1]
            mine, theirs = mine[0], theirs[0]
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
