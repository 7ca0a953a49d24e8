"""Servers that have moved are found through a file."""

import grpc
import pytest

from cluster.jobs import free_endpoints
from refluid import flags
from refluid.runtime.transport.addresses import address_of
from refluid.runtime.transport.connection import Connection
from refluid.runtime.transport.listener import listen


@pytest.fixture
def moved(tmp_path):
    path = tmp_path / "endpoints"
    flags.write_flag("FLAGS_rpc_endpoints_file", str(path))
    yield path
    flags.write_flag("FLAGS_rpc_endpoints_file", "")


def test_an_endpoint_is_its_own_address_unless_the_file_says_otherwise(moved):
    assert address_of("a:1") == "a:1"
    moved.write_text("# replaced on Monday\nb:1 c:2\n\na:1 d:4  # and this one\n")
    assert (address_of("a:1"), address_of("b:1"), address_of("e:1")) == ("d:4", "c:2", "e:1")


def test_a_bad_line_is_named(moved):
    moved.write_text("a:1 b:2\nc\n")
    with pytest.raises(ValueError, match=r"endpoints, line 2: expected ENDPOINT ADDRESS"):
        address_of("c:1")


def test_a_connection_follows_a_server_that_moves(moved):
    old, new = free_endpoints(2)
    first, second = (listen(place, {"Status": lambda message, _, p=place: [p.encode()]}, 2) for place in (old, new))
    first.start()
    second.start()
    connection = Connection(old)
    assert connection.call("Status", [b""], 5.0) == old.encode()
    first.stop(None).wait()
    moved.write_text(f"{old} {new}\n")
    with pytest.raises(grpc.RpcError):
        connection.call("Status", [b""], 5.0)
    assert connection.call("Status", [b""], 5.0) == new.encode()
    connection.close()
    second.stop(None).wait()
