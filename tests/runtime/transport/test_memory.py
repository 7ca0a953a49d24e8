"""Memory of messages that were freed."""

import resource
import sys
from pathlib import Path

import pytest

from refluid.runtime.transport.memory import give_back_freed_memory, keep_freed_memory

MB = 1 << 20


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_memory_between_blocks_that_stay_is_given_back():
    keep_freed_memory()
    blocks = [(b"%d" % i * (2 * MB), b"stays %d" % i * 1000) for i in range(10, 60)]
    stays = [small for _, small in blocks]
    full = resident()
    del blocks
    give_back_freed_memory(1 << 40)
    kept = resident()
    give_back_freed_memory(16 * MB)
    assert full - kept < 50 * MB, "the next messages find it"
    assert full - resident() > 100 * MB
    assert len(stays) == 50
