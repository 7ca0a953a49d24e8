"""The variables in the Kubernetes example give every pod its place."""

import os
import re
from pathlib import Path

import pytest

from paddle.fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker

TEXT = (Path(__file__).parents[2] / "examples/kubernetes/jobset.yaml").read_text()
ROLES = dict(re.findall(r"^    - name: (server|trainer)\n(.*?)(?=^    - name: |\Z)", TEXT, re.M | re.S))


def pods():
    return [(role, i) for role, text in ROLES.items() for i in range(int(re.findall(r"completions: (\d+)", text)[0]))]


def test_the_example_has_two_servers_and_four_trainers():
    assert [role for role, _ in pods()] == ["server"] * 2 + ["trainer"] * 4


@pytest.mark.parametrize(("role", "index"), pods())
def test_a_pod_knows_its_place(monkeypatch, role, index):
    for name in [name for name in os.environ if name.startswith("PADDLE_")]:
        monkeypatch.delenv(name)
    for name, value in re.findall(r"- name: (\w+)\n\s+value: (.*)", ROLES[role]):
        monkeypatch.setenv(name, value.strip('"').replace("$(INDEX)", str(index)))
    place = PaddleCloudRoleMaker()
    assert (place.is_server(), place.worker_index()) == (role == "server", index)
    assert place.worker_num() == sum(each == "trainer" for each, _ in pods())
    assert len(place.get_pserver_endpoints()) == sum(each == "server" for each, _ in pods())
