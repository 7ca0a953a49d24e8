import socket
import sys

import pytest

from refluid.runtime.launch.environment import split_endpoint
from refluid.runtime.launch.ports import HeldPorts


@pytest.fixture
def ports():
    held = HeldPorts()
    yield held
    held.close()


def address(endpoint):
    host, port = split_endpoint(endpoint)
    return host, int(port)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2 is an address on Linux only")
def test_servers_in_line_share_one_port(ports):
    endpoints = [address(endpoint) for endpoint in ports.hold_same_port(3)]
    assert [host for host, _ in endpoints] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert len({port for _, port in endpoints}) == 1


def test_a_held_port_is_not_handed_out_but_can_be_listened_on(ports):
    endpoint = address(ports.hold("127.0.0.1"))
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(endpoint)
    ports.release_for_children()
    with socket.create_server(endpoint) as server, socket.create_connection(server.getsockname()):
        pass  # a server with SO_REUSEADDR, as gRPC's is, gets it


def test_a_port_in_use_is_an_error(ports):
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(OSError, match="in use"):
        ports.hold(*server.getsockname())


def test_closing_lets_go(ports):
    endpoint = address(ports.hold("127.0.0.1"))
    ports.close()
    with socket.socket() as other:
        other.bind(endpoint)
