"""Memory tracing for the tests that ask for it, and a summary of how many files were read."""

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

    if not watching.tried:  # with xdist, other processes read them
        return
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    terminalreporter.write_line(f"{watching.tried:,} damaged and forged files were read; peak memory {peak} MB")
