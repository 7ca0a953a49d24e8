"""Fleet without a job around it."""

import pytest

import paddle.fluid as fluid


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch):
    """Workers do not wait for servers, which no test here has."""
    monkeypatch.setattr(fluid.DistributeTranspilerConfig, "wait_port", False)
