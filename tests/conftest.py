"""Every test starts with empty default programs, fresh names and an empty global scope."""

from __future__ import annotations

import os

# Tests compile thousands of tiny programs: stay out of the user's cache.
os.environ.setdefault("REFLUID_CACHE_DIR", "")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# ... and compile without optimising, in a fifth of the time. `make test-as-users` runs some tests with the defaults.
# XLA miscompiles modules that it splits in that mode (tests/test_xla.py), hence a single part.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
# Programs with up to four replicas run on devices of their own, however many cores there are.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")
os.environ.setdefault("CPU_NUM", "1")  # or programs with replicas warn that it is not set

import gc
import signal
from itertools import count

import pytest


@pytest.fixture
def interruptible():
    """Python ignores interrupts in a process that was started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


_finished = count(1)


def pytest_runtest_teardown():
    """JAX keeps what it has traced and compiled; to look through all of it for garbage takes a second in the end."""
    if next(_finished) % 50 == 0:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def fresh_world():
    from refluid.ir import Program, program_guard, unique_name
    from refluid.scope import Scope, scope_guard

    with program_guard(Program(), Program()), unique_name.guard(), scope_guard(Scope()):
        yield
