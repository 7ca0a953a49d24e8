"""The random state of a training run, as JSON: a resumed run draws the same numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from refluid.ir import Program
from refluid.scope import Scope


def program_random_state(scope: Scope, program: Program) -> dict[str, int]:
    """Returns the positions of a program's random streams."""
    return {"runs": scope.runs_of(program.uid), "entropy": scope.entropy}


def restore_program_random_state(state: dict[str, int], scope: Scope, program: Program) -> None:
    """Resumes a program's random streams where `program_random_state` was taken."""
    scope.restore_random(program.uid, state["runs"], state["entropy"])


def host_random_state() -> dict[str, Any]:
    """Returns the states of `random` and `numpy.random`, which readers shuffle with."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
    }


def restore_host_random_state(state: dict[str, Any]) -> None:
    """Resumes `random` and `numpy.random` where `host_random_state` was taken."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), position, has_gauss, cached))
