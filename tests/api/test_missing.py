"""Names of Fluid 1.5 to 1.8 that refluid does not have: each says whether it is planned, and what to use instead.

names_1_8_5.txt lists the modules of real Fluid 1.8.5 with the names they export; record_names.py writes it.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import paddle
import paddle.fluid as fluid
from paddle._missing import MISSING, find

HERE = Path(__file__).parent
# Importing these raises an error of its own that says what to use instead.
REFUSED = ("paddle.fluid.dygraph", "paddle.fluid.incubate.fleet.parameter_server.pslib")
# Fluid's name for a list that is not one: ["test, get_dict"]. And lists that the package around a module extends by the
# names of its other modules.
LISTED_WRONGLY = {
    "paddle.dataset.conll05",
    *(
        f"paddle.fluid.contrib.slim.{module}"
        for module in ("distillation.distiller", "graph.executor", "nas.light_nas_strategy", "prune.pruner")
    ),
}


def read_names() -> dict[str, list[str]]:
    lines = (HERE / "names_1_8_5.txt").read_text(encoding="utf-8").splitlines()
    return {words[0]: words[1:] for words in map(str.split, lines) if words[0] != "#"}


def is_told(module: str, name: str) -> bool:
    """Whether a script that wants the name is told why it is missing: by the module, or by one around it."""
    if find(module, name) is not None:
        return True
    parent, _, child = module.rpartition(".")
    return bool(parent) and is_told(parent, child)


def missing_from_refluid() -> list[tuple[str, str]]:
    found = []
    for module, names in read_names().items():
        if module.startswith(REFUSED) or module in LISTED_WRONGLY:
            continue
        try:
            here = importlib.import_module(module)
        except ImportError:
            found.append(module.rpartition(".")[::2])
            continue
        found += [(module, name) for name in names if not hasattr(here, name)]
    return found


def answering(module: str, name: str) -> tuple[str, str]:
    """Who answers for a name of a module: layers are exported by several."""
    if module.startswith("paddle.fluid.layers."):
        return "paddle.fluid.layers", name
    if module.startswith("paddle.fluid.contrib.layers") and find(module, name) is None:
        return "paddle.fluid.contrib", name
    return module, name


def test_every_name_of_fluid_is_there_or_says_why_not():
    asked = {answering(module, name) for module, name in missing_from_refluid()}
    unexplained = sorted(f"{module}.{name}" for module, name in asked if not is_told(module, name))
    assert unexplained == [], "explain them in src/paddle/_missing.py"


def test_no_name_is_said_to_be_missing_that_is_there():
    there = []
    for module, groups in MISSING.items():
        here = vars(importlib.import_module(module))
        there += [f"{module}.{name}" for names in groups for name in names.split() if name in here]
    assert there == [], "remove them from src/paddle/_missing.py"


@pytest.mark.parametrize("module", MISSING)
def test_a_missing_name_says_so(module):
    here = importlib.import_module(module)
    for names, advice in MISSING[module].items():
        for name in names.split():
            with pytest.raises(AttributeError) as caught:
                getattr(here, name)
            assert str(caught.value) == f"{module}.{name} is in Fluid, but not in refluid: {advice}"
            assert advice.startswith(("planned", "not planned", "dynamic graphs come later"))


def test_an_import_of_a_missing_name_says_so():
    with pytest.raises(
        ImportError, match="layers.randint is in Fluid, but not in refluid: planned; use layers.uniform"
    ):
        from paddle.fluid.layers import randint  # noqa: F401
    with pytest.raises(ImportError, match="layers.randint is in Fluid, but not in refluid"):
        from paddle.fluid.layers.nn import randint as _  # noqa: F401
    with pytest.raises(ImportError, match="paddle.fluid.device_guard is in Fluid, but not in refluid: planned"):
        from paddle.fluid import device_guard  # noqa: F401


def test_only_a_very_similar_name_is_suggested():
    with pytest.raises(
        AttributeError, match="module 'paddle.fluid.layers' has no attribute 'py_readr'; did you mean py_reader"
    ):
        fluid.layers.py_readr  # noqa: B018
    with pytest.raises(AttributeError, match="module 'paddle.fluid' has no attribute 'paint'$"):
        fluid.paint  # noqa: B018
    with pytest.raises(AttributeError, match="module 'paddle' has no attribute 'nothing'$"):
        paddle.nothing  # noqa: B018


def test_python_suggests_no_other_name():
    script = "import paddle.fluid as fluid; fluid.layers.randint"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "planned; use layers.uniform_random" in ran.stderr
    assert "Did you mean" not in ran.stderr


@pytest.mark.parametrize(
    "line",
    ["from paddle.fluid import dygraph", "import paddle.fluid.dygraph", "from paddle.fluid.dygraph.base import Layer"],
)
def test_dynamic_graphs_come_later(line):
    with pytest.raises(ImportError) as caught:
        exec(line, {})
    assert "paddle.fluid.dygraph is in Fluid, but not in refluid: dynamic graphs come later" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not fluid.in_dygraph_mode()
    assert fluid.disable_dygraph() is None
    assert not hasattr(fluid, "dygraph")
