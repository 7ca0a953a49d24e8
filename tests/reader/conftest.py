"""Every test of a reader leaves no thread and no process behind."""

import multiprocessing
import threading
import time

import pytest


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5
    while leaked := [thread for thread in threading.enumerate() if thread not in before]:
        assert time.monotonic() < deadline, f"threads left running: {leaked}"
        for thread in leaked:
            thread.join(0.1)
    assert multiprocessing.active_children() == []
