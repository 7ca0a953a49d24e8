"""The variables in the Kubernetes examples give every pod its place."""

import os
import re
from pathlib import Path

import pytest

from paddle.fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
from refluid.runtime.launch.cluster import membership

FOLDER = Path(__file__).parents[2] / "examples/kubernetes"
TEXT, COLLECTIVE = ((FOLDER / name).read_text() for name in ("jobset.yaml", "collective.yaml"))
ROLES = dict(re.findall(r"^    - name: (server|trainer)\n(.*?)(?=^    - name: |\Z)", TEXT, re.M | re.S))


def pods():
    return [(role, i) for role, text in ROLES.items() for i in range(int(re.findall(r"completions: (\d+)", text)[0]))]


def test_the_example_has_two_servers_and_four_trainers():
    assert [role for role, _ in pods()] == ["server"] * 2 + ["trainer"] * 4


def variables(text, index):
    found = re.findall(r"- name: (\w+)(?: #.*)?\n\s+value: (.*)", text)
    return {name: value.strip('"').replace("$(INDEX)", str(index)) for name, value in found}


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_without_servers_knows_its_place(index):
    found = membership(variables(COLLECTIVE, index))
    assert (found.rank, len(found.endpoints)) == (index, int(re.findall(r"completions: (\d+)", COLLECTIVE)[0]))
    assert found.endpoint == f"mlp-trainer-0-{index}.mlp.default.svc.cluster.local:6170"
    assert variables(COLLECTIVE, index)["PADDLE_TRAINERS_NUM"] == "2"


@pytest.mark.parametrize(("role", "index"), pods())
def test_a_pod_knows_its_place(monkeypatch, role, index):
    for name in [name for name in os.environ if name.startswith("PADDLE_")]:
        monkeypatch.delenv(name)
    for name, value in variables(ROLES[role], index).items():
        monkeypatch.setenv(name, value)
    place = PaddleCloudRoleMaker()
    assert (place.is_server(), place.worker_index()) == (role == "server", index)
    assert place.worker_num() == sum(each == "trainer" for each, _ in pods())
    assert len(place.get_pserver_endpoints()) == sum(each == "server" for each, _ in pods())
