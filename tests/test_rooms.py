"""Imports point one way: each room may use some others, and only the bridges use `paddle`."""

import ast
import subprocess
import sys
from functools import cache
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
FILES = {
    f"files.{name}"
    for name in ("folder_locks", "raw", "remote_writing", "snappy_streams", "storage", "streams", "writing")
}
OPEN = {"alignment", "backend", "errors", "faults", "flags", "log", "numba_functions", "profiling", "tables", *FILES}
# Where values live: named arrays, devices, files.
STATE = {f"refluid.{name}" for name in ("files.recordio", "files.tensors", "meshes", "places", "scope", "tensors")}
CORE = {"refluid.ops", "refluid.ir", "refluid.lowering", "state", "refluid"}
COMPILER = {*CORE, "refluid.files", "refluid.inference", "refluid.readers", "refluid.datasets"}
RUNTIME = {
    "refluid.runtime",
    *(
        f"refluid.runtime.{room}"
        for room in "collective inference launch observe server tables trainer transport".split()
    ),
}
BETWEEN = {"refluid.runtime.observe", "refluid.runtime.transport"}

MAY_USE = {
    "open": set(),
    "refluid.kernels": set(),
    "refluid.ops": {"refluid.kernels"},
    "refluid.ir": {"refluid.ops"},
    "state": {"refluid.ops", "refluid.ir"},
    "refluid.lowering": {"refluid.kernels", "refluid.ops", "refluid.ir", "state"},
    "refluid.files": {"refluid.ops", "refluid.ir", "state"},
    "refluid.readers": {"refluid.ir", "state"},
    "refluid.datasets": {"refluid.datasets.kernels", "refluid.ir", "refluid.readers", "state"},
    "refluid.datasets.kernels": set(),
    "refluid.compression": {"refluid.ir", "state"},
    "refluid.inference": {*CORE, "refluid.files"},
    # The modules directly in refluid: the executor and what surrounds it.
    "refluid": {*CORE, "refluid.datasets", "refluid.inference", "refluid.readers"},
    "refluid.transpiler": {"refluid.ir"},
    "refluid.runtime": {*COMPILER, *RUNTIME},  # plans exchanges for trainers and servers
    "refluid.runtime.transport": {*COMPILER, "refluid.runtime.observe"},
    "refluid.runtime.observe": {"refluid.ir", "refluid.runtime.transport", "refluid.runtime.server"},
    "refluid.runtime.tables": {"refluid.ops", "state"},  # rows in memory and in files; knows no programs
    "refluid.runtime.inference": {*COMPILER, "refluid.runtime.tables"},  # rows of any ids without servers
    "refluid.runtime.server": {*COMPILER, *BETWEEN, "refluid.runtime.tables"},
    "refluid.runtime.trainer": {*COMPILER, *BETWEEN, "refluid.runtime.inference", "refluid.runtime.tables"},
    "refluid.runtime.launch": {"refluid.runtime.observe"},
    "refluid.runtime.collective": {*COMPILER, "refluid.runtime.launch"},
    "paddle": {*COMPILER, "refluid.compression", "refluid.transpiler", *RUNTIME},
    "refluid.bridges": {*COMPILER, "paddle"},  # layers and optimizers that Fluid does not have
}

# Imports against the rules, with the reason that each has.
EXCEPTIONS = {
    **{
        f"src/refluid/__init__.py -> refluid.bridges.{name}": "loaded when the name is asked for"
        for name in ("flax_layer", "jax_layer", "optax_optimizer", "to_flax")
    },
    "src/refluid/__init__.py -> refluid.runtime.trainer.session": "loaded when the name is asked for",
    "src/refluid/__init__.py -> refluid.runtime.trainer.shrinking": "loaded when a script asks for it",
    "src/refluid/__init__.py -> refluid.runtime.trainer.table_saving": "loaded when the name is asked for",
    "src/refluid/cli.py -> refluid.runtime.launch.commands": "a command line knows its commands",
    "src/refluid/cli.py -> refluid.runtime.tables.files.commands": "a command line knows its commands",
    "src/refluid/files/variables.py -> refluid.runtime.inference.any_rows": "loaded when a model has rows of any ids",
    "src/refluid/files/variables.py -> refluid.runtime.inference.saved_rows": "loaded when servers have saved a table",
    "src/refluid/inference/consistency.py -> refluid.runtime.inference.online_rows": "loaded when rows are in Redis",
    "runtime/collective/hub.py -> refluid.runtime.transport.refusals": "logs who is turned away, without gRPC",
    "src/refluid/jobs.py -> refluid.runtime.collective": "loaded when a program belongs to several processes",
    "src/refluid/lowering/exchange.py -> refluid.runtime.exchanges": "loaded when a program has exchanges",
    "src/refluid/lowering/host_piece.py -> refluid.runtime.collective": "loaded when a program joins processes",
}
# Modules outside of transport that import gRPC when they are imported.
USE_GRPC = {
    "refluid.runtime.observe.asking": "requests the state of servers",
    "refluid.runtime.observe.status": "requests the state of servers",
    "refluid.runtime.server.service": "serves",
    "refluid.runtime.trainer.group": "serves other trainers",
    "refluid.runtime.trainer.membership": "reads the status codes of failed requests",
    "refluid.runtime.trainer.server_calls": "reads the status codes of failed requests",
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
    parts = module.split(".")
    return next((room for room in (".".join(parts[:3]), ".".join(parts[:2])) if room in MAY_USE), "refluid")


def imports_of(text):
    """What a module imports of ours, by statements or by name: the names of modules.

    A module that imports by name holds these names as strings, in the call or in a table: each counts as an import.
    """
    tree = ast.parse(text)
    by_name = any(marker in text for marker in ("import_module", "__import__", "sys.modules"))
    for node in ast.walk(tree):
        targets = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the full name of the module"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [target if target in NAMES else node.module for target in targets]
        elif by_name and isinstance(node, ast.Constant) and isinstance(node.value, str):
            targets = [name for name in (node.value.rstrip("."),) if name in NAMES]  # f"refluid.kernels.{name}" as well
        yield from (name for name in targets if name.split(".")[0] in ("paddle", "refluid") and name != "refluid")


@cache
def breaches():
    """Every import against the rules, by the room that it is in."""
    return list(_find_breaches())


def _find_breaches():
    for module, path in modules():
        room = room_of(module)
        for target in sorted(set(imports_of(path.read_text(encoding="utf-8")))):
            if room_of(target) not in {room, "open", *MAY_USE[room]}:
                yield room, f"{path.relative_to(ROOT)} -> {target}"


@pytest.mark.parametrize("room", MAY_USE)
def test_a_room_uses_only_the_rooms_below_it(room):
    assert room in {room_of(module) for module in NAMES}, "there is no such room"
    assert [breach for where, breach in breaches() if where == room and breach not in EXCEPTIONS] == []


def test_exceptions_are_needed():
    assert set(EXCEPTIONS) == {breach for _, breach in breaches()} & set(EXCEPTIONS)


@pytest.mark.parametrize(
    "text",
    [
        "import refluid.runtime.exchanges",
        "from refluid.runtime import exchanges",
        "from importlib import import_module\nimport_module('refluid.runtime.exchanges')",
        "TABLE = {'x': 'refluid.runtime.exchanges'}\nimportlib.import_module(TABLE[name])",
        "__import__('refluid.runtime.exchanges')",
        "sys.modules.get('refluid.runtime.exchanges')",
        "import_module(f'refluid.runtime.{name}')",
    ],
)
def test_an_import_is_seen_however_it_is_written(text):
    assert any(room_of(name) == "refluid.runtime" for name in imports_of(text))


def test_grpc_is_imported_by_the_transport_and_few_others():
    found = {module for module, path in modules() if "grpc" in _imported_at_once(path)}
    assert {m for m in found if room_of(m) != "refluid.runtime.transport"} == set(USE_GRPC)


def _imported_at_once(path):
    """The top-level packages that a module imports when it is imported itself."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).split(".")[0]


# What is told of a program by its own attributes; a rule that reads one of them looks at a program.
OF_PROGRAMS = {
    "block",
    "find_var_recursive",
    "input_arg_names",
    "operator",
    "output_arg_names",
    "program",
    "sub_blocks",
}


def test_ops_know_no_programs():
    found = []
    for module, path in modules():
        if room_of(module) != "refluid.ops":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            reads = isinstance(node, ast.Attribute) and node.attr in OF_PROGRAMS
            takes = isinstance(node, ast.arg) and node.arg in OF_PROGRAMS
            if reads or takes:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_the_machinery_of_ops_registers_none():
    for module, path in modules():
        if module.startswith("refluid.ops.core."):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                calls = [*getattr(node, "decorator_list", []), *([node.value] if isinstance(node, ast.Expr) else [])]
                called = {ast.unparse(call.func) for call in calls if isinstance(call, ast.Call)}
                assert not called & {"op", "elementwise_ops", "add"}, f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    ("imported", "left_alone"),
    [("refluid", "paddle"), ("paddle.fluid", "grpc"), ("paddle.fluid", "numba"), ("paddle", "paddle.fluid")],
)
def test_importing_one_thing_leaves_another_alone(imported, left_alone):
    code = f"import sys, {imported}; sys.exit({left_alone!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
