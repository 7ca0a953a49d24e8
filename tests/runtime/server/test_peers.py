"""Servers that add up their parts of a sum before an update."""

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.one_process import Role, servers
from refluid.runtime.server.durable.trees import from_bytes, to_buffers
from refluid.runtime.server.peers import Peers
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import pb

CLIPPED = {"clip": 0.05, "optimizer": lambda: fluid.optimizer.SGD(1.0)}


def losses(count):
    """The losses of a job with ``count`` servers in this process that clips by global norm."""
    with servers(count=count, **CLIPPED) as endpoints:
        trainer = Role(endpoints, **CLIPPED)
        trainer.start()
        found = [float(trainer.step(seed)[0]) for seed in range(6)]
        trainer.close()
    return found


def test_a_restarted_server_still_knows_the_sums_that_others_may_ask_for():
    before = Peers(["one", "two"], "one", None)
    before.know(3, "norm", [np.array([2.5])])
    peers = Peers(["one", "two"], "one", None)
    peers.restore(from_bytes(b"".join(to_buffers(before.state()))))

    request = pb.SumRequest(server=1, servers=2, round=3, key="norm")
    reply = b"".join(peers.handle_sum(b"".join(wire.encode(request, {"0": np.array([1.0])}))))
    totals = wire.decode_tensors(wire.decode(pb.ExchangeReply, reply), reply)
    np.testing.assert_array_equal(totals["0"], [2.5])


@pytest.mark.parametrize(
    ("changes", "value", "text"),
    [
        ({"servers": 3}, np.zeros(1), "this job has 2 servers"),
        ({"server": 0}, np.zeros(1), "a part of server 0 of 2 cannot be added"),
        ({"server": -1}, np.zeros(1), "a part of server -1 of 2 cannot be added"),
        ({}, np.zeros(10_000), "takes 8.... bytes; 65536 are allowed"),
        ({}, wire.Rows(np.zeros(1, np.int64), np.zeros((1, 2))), "has selected rows"),
    ],
)
def test_parts_that_make_no_sense_are_refused_and_not_kept(changes, value, text):
    peers = Peers(["one", "two"], "one", None)
    request = pb.SumRequest(**{"server": 1, "servers": 2, "round": 3, "key": "norm", **changes})
    with pytest.raises(ValueError, match=text):
        peers.handle_sum(b"".join(wire.encode(request, {"0": value})))
    assert peers._parts == {}


def test_two_servers_in_one_process_each_add_their_own_part_to_a_global_norm():
    np.testing.assert_allclose(losses(count=2), losses(count=1), rtol=1e-5)
