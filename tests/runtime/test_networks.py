"""Bad networks between a trainer and its server: what is delayed, lost or cut is neither lost for good nor doubled."""

import threading
import time

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.jobs import wait_until
from cluster.one_process import Role, servers
from cluster.proxy import Proxy
from refluid import flags
from refluid.runtime.transport import connection, listener
from refluid.runtime.transport.port_wait import wait_for_ports

ADD_ONE = {"optimizer": lambda: fluid.optimizer.SGD(1.0)}
HEALED = 5.0  # seconds from the end of a cut to the next push that arrives


def count():
    """Every push adds 1 to all elements."""
    x = fluid.layers.data("x", [3], append_batch_size=False)
    start = fluid.initializer.Constant(0.0)
    weight = fluid.layers.create_parameter([3], "float32", name="sum", default_initializer=start)
    return fluid.layers.reduce_sum(weight * x)


class Pusher:
    """A trainer that pushes on a thread until it is stopped."""

    def __init__(self, endpoints):
        self.role = Role(endpoints, network=count, **ADD_ONE)
        self.program = self.role.transpiler.get_trainer_program(wait_port=False)
        self.role.start()
        self.pushed = 0
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._push)
        self._thread.start()

    def _push(self):
        feed = {"x": np.full(3, -1.0, "float32")}
        while not self._stops.is_set():
            self.role.exe.run(self.program, feed=feed, scope=self.role.scope)
            self.pushed += 1

    def goes_on(self):
        """Returns how long the next two pushes take; the first may have been under way."""
        began, before = time.monotonic(), self.pushed
        wait_until(lambda: self.pushed >= before + 2 or not self._thread.is_alive(), lambda: "no push arrives")
        return time.monotonic() - began

    def stop(self):
        """Stops; returns the sum on the server."""
        self._stops.set()
        self._thread.join()
        return np.array(self.role.scope.find_var("sum").get_tensor()).tolist()


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A proxy before a server, and a trainer that knows the way through the proxy only."""
    pings = {name: 1000 for name, _ in connection.OPTIONS if "keepalive_time" in name or "ping_timeout" in name}
    pings["grpc.http2.min_ping_interval_without_data_ms"] = 500
    options = [(name, pings.get(name, value)) for name, value in connection.OPTIONS]
    for module in (connection, listener):
        monkeypatch.setattr(module, "OPTIONS", options)
    with servers(1, network=count, **ADD_ONE) as endpoints, Proxy(endpoints[0]) as proxy:
        ways = tmp_path / "ways"
        ways.write_text(f"{endpoints[0]} {proxy.endpoint}\n")
        wait_for_ports(0, endpoints)  # it listens, before others look for it elsewhere
        flags.write_flag("FLAGS_rpc_endpoints_file", str(ways))
        try:
            trainer = Pusher(endpoints)
            trainer.goes_on()
            yield proxy, trainer
            trainer.stop()
            trainer.role.close()
        finally:
            flags.write_flag("FLAGS_rpc_endpoints_file", "")


@pytest.mark.parametrize("directions", [("up",), ("down",), ("up", "down")], ids="-".join)
def test_a_cut_loses_no_push_and_doubles_none(network, directions):
    proxy, trainer = network
    proxy.cut(*directions)
    held = trainer.pushed
    time.sleep(1)
    assert trainer.pushed <= held + 1
    proxy.heal()
    assert trainer.goes_on() < HEALED
    assert trainer.stop() == [trainer.pushed] * 3


def test_connections_that_are_dead_without_a_word_are_noticed(network):
    proxy, trainer = network
    proxy.forget()
    trainer.goes_on()
    assert trainer.stop() == [trainer.pushed] * 3


def test_broken_connections_are_made_again(network):
    proxy, trainer = network
    for _ in range(3):
        proxy.reset()
        assert trainer.goes_on() < HEALED
    assert trainer.stop() == [trainer.pushed] * 3


def test_a_slow_network_that_loses_packets_only_takes_longer(network):
    proxy, trainer = network
    proxy.delay, proxy.loss = 0.05, 0.2
    trainer.goes_on()
    proxy.reset()
    trainer.goes_on()
    assert trainer.stop() == [trainer.pushed] * 3
