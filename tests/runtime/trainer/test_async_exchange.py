"""Async exchange: what is queued, merged, bounded and flushed, with servers that reply when a test lets them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.jobs import wait_until
from refluid import flags
from refluid.ir.modes import Mode
from refluid.ir.slices import Slice
from refluid.runtime.trainer.async_exchange import AsyncExchange
from refluid.runtime.trainer.exchange_plan import ExchangePlan, Job, SlicedVariable
from refluid.runtime.trainer.packing import Tensors
from refluid.runtime.trainer.rows_ahead import RowsAhead
from refluid.runtime.trainer.session import bound

JOB = Job(0, 1, ("a:1",), Mode.ASYNC)


class Servers:
    """A session whose one server adds gradients to ``w`` and replies when it may."""

    def __init__(self):
        self.job, self.step, self.communicators = JOB, 0, []
        self.rows_ahead = RowsAhead()
        self.seen, self.max_staleness, self.max_lead = {"a:1": 0}, 0, None
        self.w, self.version, self.pushes, self.stalenesses = 0.0, 0, [], []
        self.may_reply = threading.Event()
        self.may_reply.set()
        self.pushing = threading.Semaphore(0)
        self.failure = None
        self.to_catch_up = 0
        self.on_leave = self.on_flush = self.declare = lambda *_: None

    def push(self, messages, steps, seen):
        self.pushing.release()
        assert self.may_reply.wait(20)
        if self.failure is not None:
            raise self.failure
        (message,) = messages.values()
        self.pushes.append((steps, float(message.pushed["w@GRAD"][0])))
        self.stalenesses.append(self.version - seen["a:1"])
        self.w += self.pushes[-1][1]
        self.version += steps
        return self.reply(message.wanted)

    def exchange(self, purpose, messages):
        return self.reply(["w"])

    def reply(self, names):
        return {"a:1": Tensors({name: np.full(1, self.w, "float32") for name in names}, self.version)}


@pytest.fixture
def start(monkeypatch):
    """Makes an exchange with the flags of a test; ends its threads afterwards."""
    made = []

    def make(adds=True, in_background=True, **given):
        monkeypatch.setattr(flags, "_set", {f"FLAGS_communicator_{name}": value for name, value in given.items()})
        session = Servers()
        w, grad = (
            SlicedVariable(name, (Slice(name, name, 0, 1, (1,), "a:1"),), np.dtype("float32"), adds=adds)
            for name in ("w", "w@GRAD")
        )
        with bound(session):
            plan = ExchangePlan(JOB, [grad], [w], in_background=in_background)
            exchange = AsyncExchange(plan, fluid.CPUPlace())
        made.append(exchange)
        return session, exchange

    yield make
    for exchange in made:
        exchange.session.may_reply.set()
        if exchange.session.failure is None:
            exchange.stop()


def step(exchange, gradient=1.0):
    return exchange({"w@GRAD": np.full(1, gradient, "float32")})


def test_a_step_gets_the_parameters_that_include_it_where_nothing_else_is_asked_for(start):
    session, exchange = start(in_background=False)
    assert [step(exchange, gradient)["w"].tolist() for gradient in (5.0, 2.0, 1.0)] == [[5.0], [7.0], [8.0]]
    assert session.pushes == [(1, 5.0), (1, 2.0), (1, 1.0)]
    assert session.stalenesses == [0, 0, 0]
    assert exchange.worst_staleness == exchange.max_staleness == 0


def test_steps_of_other_threads_during_a_push_become_one_push(start):
    session, exchange = start(in_background=False)
    session.may_reply.clear()
    threads = [threading.Thread(target=step, args=(exchange, gradient)) for gradient in (8.0, 1.0, 2.0, 6.0)]
    threads[0].start()
    assert session.pushing.acquire(timeout=20)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: exchange.queued == 3)
    session.may_reply.set()
    for thread in threads:
        thread.join(20)
    assert session.pushes == [(1, 8.0), (3, 9.0)]


@pytest.mark.parametrize(
    ("adds", "flags", "pushes"),
    [
        (True, {}, [(1, 8.0), (3, 9.0)]),
        (False, {}, [(1, 8.0), (1, 1.0), (1, 2.0), (1, 6.0)]),
        (False, {"max_merge_var_num": 9}, [(1, 8.0), (3, 3.0)]),
        (True, {"max_merge_var_num": 9, "is_sgd_optimizer": False}, [(1, 8.0), (3, 3.0)]),
        (True, {"max_merge_var_num": 2}, [(1, 8.0), (2, 3.0), (1, 6.0)]),
    ],
)
def test_steps_that_are_queued_during_a_push_keep_the_meaning_of_the_optimizer(start, adds, flags, pushes):
    session, exchange = start(adds, max_staleness=4, **flags)
    session.may_reply.clear()
    step(exchange, 8.0)
    assert session.pushing.acquire(timeout=20)
    for gradient in (1.0, 2.0, 6.0):
        step(exchange, gradient)
    assert exchange.queued == 3
    session.may_reply.set()
    exchange.flush()
    assert session.pushes == pushes
    assert (exchange.queued, session.step) == (0, 4)


def test_a_message_leaves_although_more_steps_could_be_merged(start):
    session, exchange = start(max_staleness=6)
    step(exchange, 2.0)
    wait_until(lambda: session.pushes == [(1, 2.0)])


def test_a_message_waits_for_more_steps_where_the_flags_say_so_but_not_for_a_trainer_that_waits(start):
    session, exchange = start(max_merge_var_num=3, send_wait_times=6000)
    for _ in range(3):
        step(exchange)
    wait_until(lambda: session.pushes == [(3, 3.0)])
    step(exchange)
    exchange.flush()
    assert session.pushes == [(3, 3.0), (1, 1.0)]


def test_a_step_waits_when_the_trainer_is_too_far_ahead(start):
    session, exchange = start(max_staleness=3)
    assert exchange.max_staleness == session.max_staleness == 3
    session.may_reply.clear()
    for _ in range(3):
        step(exchange)
    late = threading.Thread(target=step, args=(exchange,))
    late.start()
    late.join(0.2)
    assert late.is_alive()
    session.may_reply.set()
    late.join(20)
    assert not late.is_alive()
    for _ in range(50):
        step(exchange)
    assert exchange.worst_staleness <= 3
    assert max(session.stalenesses) <= 3


def test_the_next_step_gets_the_parameters_that_came_back_once(start):
    session, exchange = start(max_staleness=2)
    step(exchange, 5.0)
    exchange.flush()
    assert step(exchange)["w"].tolist() == [5.0]
    assert session.seen == {"a:1": 1}
    exchange.flush()
    exchange.receive()
    assert step(exchange)["w"].tolist() == [6.0]
    assert step(exchange).get("w", [7.0]) == [7.0]


def test_an_error_of_the_push_thread_is_raised_by_the_next_step(start):
    session, exchange = start(max_staleness=2)
    session.failure = RuntimeError("server a:1 is lost")
    step(exchange)
    for wait in (exchange.flush, lambda: step(exchange)):
        with pytest.raises(RuntimeError, match="server a:1 is lost"):
            wait()


def test_an_error_is_raised_by_the_step_that_pushes(start):
    session, exchange = start(in_background=False)
    session.failure = RuntimeError("server a:1 is lost")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="server a:1 is lost"):
            step(exchange)


@pytest.mark.parametrize("flags", [{"max_staleness": 0}, {"max_merge_var_num": 9, "send_wait_times": 6000}])
def test_stopping_pushes_what_is_queued_and_refuses_steps_until_it_starts_again(start, flags):
    session, exchange = start(**flags)
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
