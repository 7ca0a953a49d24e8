"""Saves checkpoints in a child process that is killed at one fault point after another, for test_checkpoints.py.

Prints, for each point, the number the newest complete checkpoint holds, or "none", and at last how many are left.
Children are forked before JAX has started any thread, so that trying a point takes milliseconds.
"""

import os
import sys
import warnings
from pathlib import Path

import numpy as np

from refluid.files.checkpoints import load_checkpoint, newest_checkpoint, save_checkpoint
from refluid.ir import Program
from refluid.scope import Scope
from refluid.tensors import LoDTensor

SAVES, KEEP = 4, 2


def make_program():
    program = Program()
    for name in ("w", "b", "counter"):
        program.global_block().create_var(name=name, shape=[3], dtype="float32", persistable=True)
    return program


def save_all(folder):
    """Checkpoint number i holds i everywhere."""
    program, scope = make_program(), Scope()
    for i in range(SAVES):
        for name in ("w", "b", "counter"):
            scope.var(name).holder = LoDTensor(np.full(3, i, "float32"))
        save_checkpoint(folder, scope, program, {"step": i}, keep=KEEP)


def killed_at(point, folder):
    """Whether a child process died at a point while it saved."""
    child = os.fork()
    if child == 0:
        os.environ["REFLUID_KILL_AT"] = str(point)
        save_all(folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def main(folder):
    warnings.simplefilter("error")  # a damaged checkpoint under a proper name would be warned about
    point, states = 1, []
    while True:
        place = Path(folder) / str(point)
        alive = not killed_at(point, place)
        found = newest_checkpoint(place)
        states.append((place, found))
        if alive:
            break
        point += 1
    for place, found in states:
        if found is None:
            print("none")
            continue
        scope, program = Scope(), make_program()
        for name in ("w", "b", "counter"):
            scope.var(name).holder = LoDTensor(np.full(3, -1, "float32"))
        load_checkpoint(found, scope, program)
        values = {float(x) for name in ("w", "b", "counter") for x in np.asarray(scope.var(name).value)}
        assert values == {float(found.progress["step"])}, (place, values, found)
        print(found.progress["step"])
    print(f"finished with {len(list(states[-1][0].iterdir()))} checkpoints")


if __name__ == "__main__":
    main(sys.argv[1])
