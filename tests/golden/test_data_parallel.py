"""Training on two devices against the recorded results of real Fluid."""

import numpy as np
import pytest

import paddle.fluid as fluid
from golden import data_parallel


@pytest.mark.parametrize("run", data_parallel.RUNS, ids=data_parallel.name_of)
def test_two_devices_train_as_in_real_fluid(run, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    with np.load(data_parallel.PATH) as recorded:
        for step, fetched in enumerate(data_parallel.train(fluid, *run)):
            for i, value in enumerate(fetched):
                expected = recorded[f"{data_parallel.name_of(run)}/{step}/{i}"]
                assert value.shape == expected.shape
                np.testing.assert_allclose(value, expected, atol=1e-4, rtol=1e-4)
