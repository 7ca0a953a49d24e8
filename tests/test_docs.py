"""What the documentation says is so: its scripts run, and its links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md")])


SCRIPTS = [
    "README.md",
    "docs/guides/first-program.md",
    "docs/guides/bring-your-fluid-model.md",
    "docs/guides/checkpoints-and-inference.md",
]


@pytest.mark.parametrize("page", SCRIPTS)
def test_the_pieces_of_python_on_a_page_make_a_script_that_runs(page, tmp_path):
    pieces = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    environment = {**os.environ, "REFLUID_SYNTHETIC_DATA": "1"}
    command = [sys.executable, "-c", "\n".join(pieces)]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith(("http://", "https://"))]
    assert [target for target in local if not (page.parent / target).exists()] == []
