"""How readers are watched while they read: time, memory, and what Python reports of their doings."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tracemalloc
from contextlib import contextmanager

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("REFLUID_FUZZ_EXAMPLES", "400"))
SECONDS = 30  # of the processor, for an example: readers have nothing to wait for, and the machine may have to
MB = 1 << 20
# What a reader may take for a file of some size, as its module says.
TENSOR, RECORDS, PICKLE, PROGRAM = (
    lambda size: 8 * size + MB,
    lambda size: 25 * size + MB,
    lambda size: 16 * size + 16 * MB,
    lambda size: 200 * size + 16 * MB,
)
TESTS = 15  # that share the examples
many = settings(
    max_examples=max(-(-EXAMPLES // TESTS), 10),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

tried = 0  # how many files readers were given
_seen: list[str] | None = None  # what Python reports while a reader works
_HARMLESS = ("object.", "sys._getframe", "builtins.id", "gc.", "array.__new__")


def _audit(event, _):
    if _seen is not None and not event.startswith(_HARMLESS):
        _seen.append(event)


sys.addaudithook(_audit)


@contextmanager
def watched(allowed):
    """Raises where the block hangs, does anything that Python reports, or, if traced, takes too much memory."""
    global _seen

    def give_up(*_):
        raise RuntimeError(f"a reader works for {SECONDS} seconds")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    tracemalloc.reset_peak()
    start, _ = tracemalloc.get_traced_memory()
    _seen = seen = []
    try:
        yield
    finally:
        _seen = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert seen == []
    assert tracemalloc.get_traced_memory()[1] - start <= allowed


@contextmanager
def little_memory():
    """Raises where the process has grown by much more than any one file could make it, and hypothesis takes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10  # in KB


def try_to_read(read, data, bound):
    global tried
    tried += 1
    with watched(bound(len(data))):
        try:
            return read(data)
        except ValueError as error:
            assert str(error)
    return None
