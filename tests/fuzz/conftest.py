"""Memory is traced where a test asks for it; at the end it is told how many files were tried."""

import resource
import tracemalloc

import pytest


@pytest.fixture
def traced_memory():
    tracemalloc.start()
    yield
    tracemalloc.stop()


def pytest_terminal_summary(terminalreporter):
    from fuzz import watching

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    terminalreporter.write_line(f"{watching.tried:,} damaged and forged files were read; peak memory {peak} MB")
