"""What JAX is told when processes join."""

import pytest

from refluid.runtime.collective.world import _chosen_interface


@pytest.mark.parametrize(
    ("variables", "interface"),
    [
        ({}, None),
        ({"NCCL_SOCKET_IFNAME": "lo"}, "lo"),
        ({"NCCL_SOCKET_IFNAME": "^docker,lo"}, None),  # a pattern; the endpoints say enough
        ({"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "eth2"}, "eth2"),
    ],
)
def test_the_network_interface_can_be_chosen(monkeypatch, variables, interface):
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _chosen_interface() == interface
