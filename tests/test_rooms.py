"""Imports point one way: each room may use some others, and nobody uses `paddle`."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "paddle": ROOT / "src/paddle",
    "refluid": ROOT / "src/refluid",
    "refluid.transpiler": ROOT / "transpiler",
    "refluid.runtime": ROOT / "runtime",
}

# Small modules that use nothing of ours, and that everyone may use.
FILES = {f"files.{name}" for name in ("folder_locks", "raw", "remote_writing", "storage", "streams", "writing")}
OPEN = {"backend", "errors", "faults", "flags", "log", "profiling", *FILES}
# Where values live: named arrays, devices, files.
STATE = {"refluid.places", "refluid.scope", "refluid.files.tensors", "refluid.tensors"}
CORE = {"refluid.ops", "refluid.ir", "refluid.lowering", "state", "refluid"}
COMPILER = {*CORE, "refluid.files", "refluid.inference", "refluid.readers"}

MAY_USE = {
    "open": set(),
    "refluid.kernels": set(),
    "refluid.ops": {"refluid.kernels"},
    "refluid.ir": {"refluid.ops"},
    "state": {"refluid.ops", "refluid.ir"},
    "refluid.lowering": {"refluid.kernels", "refluid.ops", "refluid.ir", "state"},
    "refluid.files": {"refluid.ops", "refluid.ir", "state"},
    "refluid.readers": {"state"},
    "refluid.inference": {*CORE, "refluid.files"},
    "refluid": {*CORE, "refluid.inference"},  # the modules directly in refluid: the executor and what surrounds it
    "refluid.transpiler": {"refluid.ir"},
    "refluid.runtime": COMPILER,
    "paddle": {*COMPILER, "refluid.transpiler", "refluid.runtime"},
}


def modules():
    """Every module's name and file."""
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join([package, *parts]).removesuffix(".__init__"), path


NAMES = {name for name, _ in modules()}


def room_of(module):
    if module.split(".")[0] == "paddle":
        return "paddle"
    if module.removeprefix("refluid.") in OPEN:
        return "open"
    if module in STATE:
        return "state"
    room = ".".join(module.split(".")[:2])
    return room if room in MAY_USE else "refluid"


def imports_of(path):
    """What a file imports of ours: module name and line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the full name of the module"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [target if target in NAMES else node.module for target in targets]
        else:
            continue
        ours = [target for target in targets if target.split(".")[0] in ("paddle", "refluid")]
        yield from ((target, node.lineno) for target in ours if target != "refluid")  # which holds nothing itself


@pytest.mark.parametrize("room", MAY_USE)
def test_a_room_uses_only_the_rooms_below_it(room):
    assert room in {room_of(module) for module in NAMES}, "there is no such room"
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}, of {room_of(target)}"
        for module, path in modules()
        if room_of(module) == room
        for target, line in imports_of(path)
        if room_of(target) not in {room, "open", *MAY_USE[room]}
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("imported", "left_alone"),
    [("refluid", "paddle"), ("paddle.fluid", "grpc"), ("paddle.fluid", "numba"), ("paddle", "paddle.fluid")],
)
def test_importing_one_thing_leaves_another_alone(imported, left_alone):
    code = f"import sys, {imported}; sys.exit({left_alone!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
