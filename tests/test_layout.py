"""pyproject.toml lists every package: one that is missing there would be missing from an installed refluid."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def read_project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def find_packages():
    setuptools = read_project()["tool"]["setuptools"]
    for package, folder in setuptools["package-dir"].items():
        base = ROOT / folder
        for init in base.rglob("__init__.py"):
            parts = init.parent.relative_to(base).parts
            yield ".".join([package, *parts] if package else parts)


def test_every_package_is_listed_and_every_listed_package_exists():
    listed = read_project()["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(find_packages())


def test_every_folder_with_modules_is_a_package():
    folders = {path.parent for room in ("src", "transpiler", "runtime") for path in (ROOT / room).rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_type_checkers_find_the_rooms_outside_src():
    for room in ("transpiler", "runtime"):
        assert (ROOT / "typings/refluid" / room).resolve() == (ROOT / room).resolve()
