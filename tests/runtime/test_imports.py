"""Rooms of the runtime: trainers and servers do not import each other, and what decides imports no gRPC."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parent.parent.parent / "runtime"
DECIDES = ["trainer.merging", "trainer.packing", "trainer.exchange_plan", "trainer.geo_deltas", "server.rounds"]


@pytest.mark.parametrize(("room", "other"), [("trainer", "server"), ("server", "trainer"), ("transport", "trainer")])
def test_a_room_does_not_import_another(room, other):
    pattern = re.compile(rf"refluid\.runtime(\.| import ){other}\b")
    files = list((RUNTIME / room).glob("*.py"))
    assert len(files) > 4
    assert [path.name for path in files if pattern.search(path.read_text(encoding="utf-8"))] == []


def test_what_decides_does_not_import_grpc():
    imports = ", ".join(f"refluid.runtime.{module}" for module in DECIDES)
    code = f"import sys, {imports}; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
