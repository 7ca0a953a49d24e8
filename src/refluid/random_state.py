"""The random state of a training run, as JSON can hold it: what makes a run that goes on draw the same numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from refluid.ir import Program
from refluid.scope import Scope


def program_random_state(scope: Scope, program: Program) -> dict[str, int]:
    """Where the random numbers of a program's ops stand."""
    return {"runs": scope.runs_of(program.uid), "entropy": scope.entropy}


def restore_program_random_state(state: dict[str, int], scope: Scope, program: Program) -> None:
    """Makes the ops of a program draw what came after `program_random_state`."""
    scope.restore_random(program.uid, state["runs"], state["entropy"])


def host_random_state() -> dict[str, Any]:
    """Where `random` and `numpy.random` stand, which readers shuffle with."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(words), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
    }


def restore_host_random_state(state: dict[str, Any]) -> None:
    """Makes `random` and `numpy.random` give what came after `host_random_state`."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), position, has_gauss, cached))
