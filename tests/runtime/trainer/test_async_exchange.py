"""Async exchange: what is queued, merged, bounded and flushed, with servers that reply when a test lets them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid import flags
from refluid.ir.modes import Mode
from refluid.ir.slices import Slice
from refluid.runtime.trainer.async_exchange import AsyncExchange
from refluid.runtime.trainer.exchange_plan import ExchangePlan, Job, SlicedVariable
from refluid.runtime.trainer.session import bound

JOB = Job(0, 1, ("a:1",), Mode.ASYNC)


class Servers:
    """A session whose one server adds gradients to ``w`` and replies when it may."""

    def __init__(self):
        self.job, self.step, self.communicators = JOB, 0, []
        self.w, self.pushes, self.reads = 0.0, [], 0
        self.may_reply = threading.Event()
        self.may_reply.set()
        self.pushing = threading.Semaphore(0)
        self.failure = None
        self.on_leave = self.on_flush = self.declare = lambda *_: None

    def push(self, messages, steps):
        self.pushing.release()
        assert self.may_reply.wait(20)
        if self.failure is not None:
            raise self.failure
        (message,) = messages.values()
        self.pushes.append((steps, float(message.pushed["w@GRAD"][0])))
        self.w += self.pushes[-1][1]
        return {"a:1": {name: np.full(1, self.w, "float32") for name in message.wanted}}

    def exchange(self, purpose, messages):
        self.reads += 1
        return {"a:1": {"w": np.full(1, self.w, "float32")}}


@pytest.fixture
def start(monkeypatch):
    """Makes an exchange with the flags of a test; ends its threads afterwards."""
    made = []

    def make(**given):
        monkeypatch.setattr(flags, "_set", {f"FLAGS_communicator_{name}": value for name, value in given.items()})
        session = Servers()
        w, grad = (
            SlicedVariable(name, (Slice(name, name, 0, 1, (1,), "a:1"),), np.dtype("float32"))
            for name in ("w", "w@GRAD")
        )
        with bound(session):
            exchange = AsyncExchange(ExchangePlan(JOB, [grad], [w]), fluid.CPUPlace())
        made.append(exchange)
        return session, exchange

    yield make
    for exchange in made:
        exchange.session.may_reply.set()
        exchange.stop()


def step(exchange, gradient=1.0):
    return exchange({"w@GRAD": np.full(1, gradient, "float32")})


@pytest.mark.parametrize(("sums", "merged"), [(True, 9.0), (False, 3.0)])
def test_steps_that_are_queued_during_a_push_become_one_push(start, sums, merged):
    session, exchange = start(send_wait_times=0, is_sgd_optimizer=sums)
    session.may_reply.clear()
    step(exchange, 8.0)
    assert session.pushing.acquire(timeout=20)
    for gradient in (1.0, 2.0, 6.0):
        step(exchange, gradient)
    assert exchange.queued == 3
    session.may_reply.set()
    exchange.flush()
    assert session.pushes == [(1, 8.0), (3, merged)]
    assert (exchange.queued, session.step) == (0, 4)


def test_a_step_waits_when_the_trainer_is_too_far_ahead(start):
    session, exchange = start(max_staleness=3, send_wait_times=0)
    session.may_reply.clear()
    assert exchange.bound == 3
    for _ in range(3):
        step(exchange)
    late = threading.Thread(target=step, args=(exchange,))
    late.start()
    late.join(0.2)
    assert late.is_alive()
    session.may_reply.set()
    late.join(20)
    assert not late.is_alive()
    assert exchange.worst_staleness < 3


def test_the_next_step_gets_the_parameters_that_came_back_once(start):
    session, exchange = start(max_staleness=2, send_wait_times=0)  # every push pulls
    assert step(exchange, 5.0) == {}
    exchange.flush()
    assert step(exchange)["w"].tolist() == [5.0]
    exchange.flush()
    exchange.receive()
    assert (session.reads, step(exchange)["w"].tolist()) == (1, [6.0])
    assert exchange.staleness == 0


def test_a_thread_of_its_own_pulls_where_the_flag_is_given(start):
    session, exchange = start(independent_recv_thread=True, max_staleness=2, send_wait_times=0)
    for _ in range(6):
        step(exchange)
    exchange.flush()
    assert session.reads > 0
    assert len(session.pushes) > 0
    assert exchange.worst_staleness < 2


def test_an_error_of_the_push_thread_is_raised_by_the_next_step(start):
    session, exchange = start(send_wait_times=0)
    session.failure = RuntimeError("server a:1 is lost")
    step(exchange)
    for wait in (exchange.flush, lambda: step(exchange)):
        with pytest.raises(RuntimeError, match="server a:1 is lost"):
            wait()


def test_stopping_pushes_what_is_queued_and_refuses_steps_until_it_starts_again(start):
    session, exchange = start(send_wait_times=1000)
    step(exchange, 2.0)
    exchange.stop()
    assert session.pushes == [(1, 2.0)]
    assert not exchange.is_running
    with pytest.raises(RuntimeError, match="start it again before training on"):
        step(exchange)
    exchange.start()
    step(exchange, 4.0)
    exchange.flush()
    assert session.pushes == [(1, 2.0), (1, 4.0)]
