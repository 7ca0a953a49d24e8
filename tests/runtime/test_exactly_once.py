"""Every update counts once: replies are lost, requests arrive twice, and the server is killed meanwhile.

The shipped trainer and server, connected by function calls. REFLUID_CHAOS_PUSHES=100000 pushes more often.
"""

import os
import random

import grpc
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid import flags
from refluid.errors import ServerError
from refluid.runtime.trainer.gather import inventory
from refluid.runtime.transport.request import RetryPolicy
from simulated_cluster import EXE, InMemoryConnection, Job, Server, bound, close_jobs, shipped

PUSHES = int(os.environ.get("REFLUID_CHAOS_PUSHES", "600"))
KILLS = 5


class LostError(grpc.RpcError):
    """What gRPC says when a connection breaks."""

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return "the connection was lost"


class Unreliable(InMemoryConnection):
    """Loses a fifth of all replies, and delivers a fifth of all requests twice."""

    chance = random.Random(7)

    def call(self, method, buffers, timeout, reply_size=0):
        server = self._servers[self.endpoint].server
        message = b"".join(buffers)
        try:
            if self.chance.random() < 0.2:
                server.handle(method, message)
            reply = b"".join(server.handle(method, message))
        except shipped.RestartedError as error:
            raise LostError from error
        if self.chance.random() < 0.2:
            raise LostError
        return reply


def add_one():
    """Every push of a gradient adds 1 to all elements."""
    x = fluid.layers.data("x", [3], append_batch_size=False)
    weight = fluid.layers.create_parameter(
        [3], "float32", name="sum", default_initializer=fluid.initializer.Constant(0.0)
    )
    fluid.optimizer.SGD(1.0).minimize(fluid.layers.reduce_sum(weight * x))


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setattr(RetryPolicy, "pause", lambda self, attempt: 0.0)
    monkeypatch.setattr("simulated_cluster.InMemoryConnection", Unreliable)
    flags.write_flag("FLAGS_rpc_server_snapshots", str(tmp_path / "snapshots"))
    flags.write_flag("FLAGS_rpc_server_log_sync", False)
    yield lambda: Job(add_one, servers=1, trainers=1, sync_mode=False)
    close_jobs()
    for name in ("FLAGS_rpc_server_snapshots", "FLAGS_rpc_server_log"):
        flags.write_flag(name, "")
    flags.write_flag("FLAGS_rpc_server_log_sync", True)


def kill(job, endpoint):
    """Kills a server, and starts it again."""
    old = job.servers[endpoint]
    old.server._recovery.close(finished=False)
    job.servers[endpoint] = Server(old.program, old.startup, job.servers)


def train(job):
    """Pushes +1 and kills the server now and then; returns the sum."""
    (trainer,), (endpoint,) = job.trainers, job.endpoints
    feed = {"x": np.full(3, -1.0, "float32")}
    kills = {PUSHES * kill // (KILLS + 1) for kill in range(1, KILLS + 1)}
    with bound(trainer.session):
        for push in range(PUSHES):
            if push in kills:
                kill(job, endpoint)
            elif push % 97 == 50:
                job.servers[endpoint].server._recovery.snapshot()
            EXE.run(trainer.program, feed=feed, scope=trainer.scope)
        trainer.session.flush()
    values = job.whole("sum")
    assert (values == values[0]).all()
    return int(values[0])


def test_with_a_log_the_sum_is_exact(job, tmp_path):
    flags.write_flag("FLAGS_rpc_server_log", str(tmp_path / "log"))
    running = job()
    assert train(running) == PUSHES
    assert running.trainers[0].session.lost_updates == 0


def test_without_a_log_what_is_lost_is_reported_to_the_last_update(job):
    running = job()
    found, lost = train(running), running.trainers[0].session.lost_updates
    assert 0 < lost < KILLS * 97
    assert found == PUSHES - lost
    server = running.servers[running.endpoints[0]].server
    assert server.metrics.status([])["recovery"]["restored"]


def test_what_is_lost_between_two_pushes_is_reported_too_and_once(job):
    running = job()
    (trainer,), (endpoint,) = running.trainers, running.endpoints
    feed = {"x": np.full(3, -1.0, "float32")}
    with bound(trainer.session):
        for pushes, lost in [(5, 5), (2, 7)]:
            for _ in range(pushes):
                EXE.run(trainer.program, feed=feed, scope=trainer.scope)
            trainer.session.flush()
            kill(running, endpoint)
            inventory(trainer.session)  # whatever call is the next one
            trainer.session.barrier()
            assert trainer.session.lost_updates == lost
    assert (running.whole("sum") == 0).all()


def test_a_server_that_lost_its_first_parameters_is_an_error(job):
    flags.write_flag("FLAGS_rpc_server_snapshots", "")
    running = job()
    (trainer,), (endpoint,) = running.trainers, running.endpoints
    old = running.servers[endpoint]
    running.servers[endpoint] = Server(old.program, old.startup, running.servers)
    with bound(trainer.session), pytest.raises(ServerError, match="restarted .* parameters are lost.*snapshots"):
        trainer.session._before_retry(endpoint, "UNAVAILABLE", 0.0)
