"""SSP: a trainer is never more steps ahead of the slowest one than it may be, in all asynchronous modes."""

import threading

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.jobs import wait_until
from refluid import flags
from refluid.runtime.server import exchange
from refluid.runtime.trainer.session import bound
from simulated_cluster import EXE, Job, close_jobs

LEAD, STEPS = 5, 20
MODES = {
    "async": ({}, {"max_staleness": 0}, 1),
    "async in the background": ({"runtime_split_send_recv": True}, {"max_staleness": 2}, 1),
    "async by default": ({"runtime_split_send_recv": True}, {}, 1),
    "half-async": ({"half_async": True}, {"max_merge_var_num": 2}, 2),
    "geo": ({"geo_sgd_mode": True, "geo_sgd_need_push_nums": 3}, {}, 3),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(exchange, "_PENDING_AFTER", 0.05)
    yield
    close_jobs()


def build():
    x = fluid.layers.data("x", [3])
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 2)))
    fluid.optimizer.SGD(0.01).minimize(loss)


def make(monkeypatch, mode, lead=LEAD):
    options, given, per_push = MODES[mode]
    chosen = {f"FLAGS_communicator_{name}": value for name, value in {"max_lead": lead, **given}.items()}
    monkeypatch.setattr(flags, "_set", chosen)
    config = fluid.DistributeTranspilerConfig()
    for name, value in {"sync_mode": False, **options}.items():
        setattr(config, name, value)
    return Job(build, servers=1, trainers=2, config=lambda: config, sync_mode=False), per_push


def step(trainer):
    with bound(trainer.session):
        EXE.run(trainer.program, feed={"x": np.ones((2, 3), "float32")}, scope=trainer.scope)


@pytest.mark.parametrize("mode", MODES)
def test_a_trainer_waits_for_the_slowest_and_not_for_one_that_has_left(monkeypatch, mode):
    job, per_push = make(monkeypatch, mode)
    fast, slow = job.trainers
    (server,) = (role.server for role in job.servers.values())
    held, status = server._exchange.held, lambda: server.metrics.status([])["trainers"]
    taken = []

    def run():
        for number in range(STEPS):
            step(fast)
            taken.append(number)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    for others in range(0, 4 * per_push, per_push):
        wait_until(lambda: 0 in held and server._exchange.slower(0), lambda: (taken, status()))
        assert len(taken) - others <= LEAD
        if mode == "async":
            assert len(taken) - others == LEAD
        for _ in range(per_push):
            step(slow)
        for communicator in slow.session.communicators:
            communicator.flush()
    assert status()[0]["max_lead"] is not None
    slow.session.leave()
    thread.join(60)
    assert len(taken) == STEPS


def test_a_lead_that_leaves_no_room_for_the_mode_is_refused(monkeypatch):
    job, _ = make(monkeypatch, "geo", lead=1)
    with pytest.raises(
        ValueError, match="max_lead is 1, but GEO training exchanges every 3 steps: it must be 2 or more"
    ):
        step(job.trainers[0])
