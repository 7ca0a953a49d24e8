"""Saves over what was saved before, in a child that is killed at one fault point after another; for test_io.py.

Run as ``python saving_to_kill.py FOLDER WAY``. Prints for each point the number that loading finds in every variable,
1 of the first save or 2 of the second. Children are forked before JAX has started any thread.
"""

import os
import sys
from pathlib import Path

import numpy as np

import paddle.fluid as fluid
from refluid.tensors import LoDTensor

NAMES = ("b", "counter", "w")


def make_program():
    block = fluid.default_main_program().global_block()
    block.create_parameter(name="w", shape=[50, 100], dtype="float32")
    block.create_parameter(name="b", shape=[3], dtype="float32")
    block.create_var(name="counter", shape=[1], dtype="int64", persistable=True)


def save(way, folder, number):
    for name, shape, dtype in (("w", [50, 100], "float32"), ("b", [3], "float32"), ("counter", [1], "int64")):
        fluid.global_scope().var(name).holder = LoDTensor(np.full(shape, number, dtype))
    if way == "state":
        fluid.save(fluid.default_main_program(), str(folder / "model"))
    else:
        fluid.io.save_persistables(None, str(folder), filename="all" if way == "combined" else None)


def load(way, folder):
    """The numbers in all variables."""
    with fluid.scope_guard(fluid.Scope()):
        if way == "state":
            fluid.load(fluid.default_main_program(), str(folder / "model"))
        else:
            fluid.io.load_persistables(None, str(folder), filename="all" if way == "combined" else None)
        values = [np.asarray(fluid.global_scope().find_var(name).get_tensor()) for name in NAMES]
        return sorted({int(x) for value in values for x in value.ravel()})


def main(root, way):
    make_program()
    point, folders = 0, []
    while True:
        point += 1
        folders.append(Path(root) / str(point))
        child = os.fork()
        if child == 0:
            save(way, folders[-1], 1)
            os.environ["REFLUID_KILL_AT"] = str(point)
            save(way, folders[-1], 2)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert status == 0, status
            break
    for folder in folders:
        print(*load(way, folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
