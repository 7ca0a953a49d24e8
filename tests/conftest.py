"""Every test starts with empty default programs, fresh names and an empty global scope."""

from __future__ import annotations

import os

# Tests compile thousands of tiny programs: keep the user's cache out of it.
os.environ.setdefault("REFLUID_CACHE_DIR", "")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest


@pytest.fixture(autouse=True)
def fresh_world():
    from refluid.ir import Program, program_guard, unique_name
    from refluid.scope import Scope, scope_guard

    with program_guard(Program(), Program()), unique_name.guard(), scope_guard(Scope()):
        yield
