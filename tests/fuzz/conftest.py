"""Memory is traced where a test asks for it."""

import tracemalloc

import pytest


@pytest.fixture
def traced_memory():
    tracemalloc.start()
    yield
    tracemalloc.stop()
