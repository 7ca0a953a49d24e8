"""What the documentation says is so: its scripts run, and its links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/**/*.md")
PAGES = sorted(path for folder in FOLDERS for path in ROOT.glob(folder))


SCRIPTS = [
    "README.md",
    "docs/guides/first-program.md",
    "docs/guides/bring-your-fluid-model.md",
    "docs/guides/checkpoints-and-inference.md",
    "docs/guides/sequences.md",
]


@pytest.mark.parametrize("page", SCRIPTS)
def test_the_pieces_of_python_on_a_page_make_a_script_that_runs(page, tmp_path):
    pieces = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    environment = {**os.environ, "REFLUID_SYNTHETIC_DATA": "1"}
    command = [sys.executable, "-c", "\n".join(pieces)]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_the_script_on_the_page_about_parameter_servers_is_a_job(tmp_path):
    page = (ROOT / "docs/guides/parameter-servers.md").read_text(encoding="utf-8")
    (tmp_path / "job.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    command = [sys.executable, "-m", "refluid.cli", "launch", "--servers", "2", "--trainers", "2", "job.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "[trainer 1] step 80 loss" in run.stdout
    assert (tmp_path / "model/__model__").exists() and (tmp_path / "persistables/embedding_0.w_0_moment1_0").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith(("http://", "https://"))]
    assert [target for target in local if not (page.parent / target).exists()] == []
