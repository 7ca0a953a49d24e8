"""The documentation is true: its snippets run, its links resolve, and its index is complete."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("*.md", "docs/**/*.md", "examples/**/*.md", "bench/*.md", "tests/**/*.md")
PAGES = sorted(path for folder in FOLDERS for path in ROOT.glob(folder))
JOB = ROOT / "docs/guides/parameter-servers.md"  # its script is launched, not run
USER_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guides").glob("*.md"))]


def snippets(page):
    """The Python of a page. ```` ```python fragment ```` marks what cannot run by itself, such as part of a class."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def named(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in USER_PAGES if snippets(page) and page != JOB], ids=named)
def test_the_snippets_of_a_page_form_a_script_that_runs(page, tmp_path):
    environment = {**os.environ, "REFLUID_SYNTHETIC_DATA": "1"}
    command = [sys.executable, "-c", "\n".join(snippets(page))]
    run = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr


def test_the_snippets_about_parameter_servers_form_a_job(tmp_path):
    (tmp_path / "job.py").write_text("\n".join(snippets(JOB)))
    command = [sys.executable, "-m", "refluid.cli", "launch", "--servers", "2", "--trainers", "2", "job.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    assert "[trainer 1] step 80 loss" in run.stdout
    assert (tmp_path / "model/__model__").exists() and (tmp_path / "persistables/embedding_0.w_0_moment1_0").exists()


@pytest.mark.parametrize("page", USER_PAGES, ids=named)
def test_a_snippet_runs_unless_it_is_marked_as_a_fragment(page):
    languages = re.findall(r"^```(\S.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [word for word in languages if word not in ("python", "python fragment", "diff")] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_within_the_project_resolve(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith(("http://", "https://"))]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_to_headings_resolve(page):
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    links = [(target, heading) for target, heading in links if not target.startswith(("http://", "https://"))]
    assert [link for link in links if link[1] not in headings(page.parent / link[0] if link[0] else page)] == []


def headings(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def test_the_index_lists_every_page():
    folder = ROOT / "docs"
    linked = {
        (folder / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", (folder / "README.md").read_text())
    }
    pages = set(folder.rglob("*.md")) - {folder / "README.md"}
    assert sorted(named(page) for page in pages if page.resolve() not in linked) == []


def test_no_text_installs_refluid_from_a_package_index():
    """refluid is installed from a checkout; no package index has it."""
    rooms = [path for room in ("src", "runtime", "transpiler") for path in (ROOT / room).rglob("*.py")]
    texts = {
        path: path.read_text(encoding="utf-8") for path in [*PAGES, *rooms, *(ROOT / "examples").rglob("Dockerfile")]
    }
    assert [named(path) for path, text in texts.items() if re.search(r"pip install (-\S+ )*'?refluid\b", text)] == []
