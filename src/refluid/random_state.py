"""The random state of a program, as JSON: a resumed run draws the same numbers. `readers.position` has readers' own."""

from __future__ import annotations

from refluid.ir import Program
from refluid.scope import Scope


def program_random_state(scope: Scope, program: Program) -> dict[str, int]:
    """Returns the positions of a program's random streams."""
    return {"runs": scope.runs_of(program.uid), "entropy": scope.entropy}


def restore_program_random_state(state: dict[str, int], scope: Scope, program: Program) -> None:
    """Resumes a program's random streams where `program_random_state` was taken."""
    scope.restore_random(program.uid, state["runs"], state["entropy"])
