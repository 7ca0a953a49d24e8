"""Readers give what real Fluid 1.8.5 gives for the same files: values, types and order (see cases.py and record.py)."""

import json
from pathlib import Path

import pytest

import paddle.dataset as datasets
from dataset.cases import CASES, answer, arguments

pytest.importorskip("PIL")
from dataset import homes

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["synthetic"])
def test_synthetic_files_are_read_as_by_fluid(case, monkeypatch):
    monkeypatch.setenv("REFLUID_SYNTHETIC_DATA", "1")
    assert answer(case, datasets) == GOLDEN["synthetic"][case]


@pytest.fixture(scope="module")
def irregular(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    for name, content in homes.irregular().items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return home


@pytest.mark.parametrize("case", GOLDEN["irregular"])
def test_irregular_files_are_read_as_by_fluid(case, irregular, monkeypatch):
    monkeypatch.delenv("REFLUID_SYNTHETIC_DATA", raising=False)
    monkeypatch.setattr(datasets.common, "DATA_HOME", str(irregular))
    monkeypatch.setattr(
        datasets.common,
        "download",
        lambda url, module, md5, name=None: str(irregular / module / (name or url.split("/")[-1])),
    )
    assert answer(case, datasets) == GOLDEN["irregular"][case]


# In Fluid, functions of any keywords.
SPELLED_OUT = {("movielens", "train"), ("movielens", "test")}


@pytest.mark.parametrize("module", GOLDEN["signatures"])
def test_functions_have_the_arguments_of_fluid(module):
    expected = {name: a for name, a in GOLDEN["signatures"][module].items() if (module, name) not in SPELLED_OUT}
    assert {name: arguments(getattr(getattr(datasets, module), name)) for name in expected} == expected


def test_every_case_was_recorded():
    assert set(CASES) == {*GOLDEN["synthetic"], *GOLDEN["irregular"]}
