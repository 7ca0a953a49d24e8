"""Async training: gradients leave when the connection is free, and the reply brings the parameters.

What is queued while a message is under way leaves with the next one. How many of its own steps a trainer's parameters
may lack is bounded, see `Pacing` and `Ahead`: with 0 every step waits for its own message, which its own thread sends;
otherwise a thread sends while the trainer computes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from refluid import flags
from refluid.places import Place
from refluid.runtime.trainer.ahead import Ahead
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import ExchangePlan
from refluid.runtime.trainer.merging import MergeQueue
from refluid.runtime.trainer.pacing import Pacing, max_lead
from refluid.runtime.trainer.packing import NO_PULLS, Replies, Versions, pack, to_host, versions_of
from refluid.runtime.trainer.rows_ahead import Expected


class AsyncExchange(TrainerExchange):
    """Pushes gradients and pulls parameters at the pace of the connection."""

    def __init__(self, plan: ExchangePlan, place: Place):
        super().__init__(plan, place)
        self.declare()
        sums = flags.read_flag("FLAGS_communicator_is_sgd_optimizer")
        self._pushes = [replace(variable, adds=variable.adds and sums) for variable in plan.pushes]
        self._pacing = Pacing.of_flags(
            len(plan.pushes), in_background=plan.in_background, sums=all(each.adds for each in self._pushes)
        )
        self.max_staleness = self.session.max_staleness = self._pacing.max_staleness
        why = f"the parameters of a step may lack {self.max_staleness} steps (FLAGS_communicator_max_staleness)"
        self.session.max_lead = max_lead(self.max_staleness, why)
        self.session.unknown_steps = self.max_staleness
        self.staleness = 0  # own steps that the parameters of the last step did not include
        self.worst_staleness = 0
        self._ahead = Ahead(self._pacing)
        self._queue = MergeQueue(self._pacing.max_merged)
        self._changed = threading.Condition()  # guards what follows
        self._stepped = 0  # steps taken
        self._pushed = 0  # steps that servers have applied
        self._included = 0  # steps that the newest parameters include
        self._used = 0  # steps that the parameters in use include
        self._newest: dict[str, Any] = {}
        self._versions: Versions = {}  # of the newest parameters
        self._is_running = False
        self._is_pushing = False
        self._resumed: float | None = None  # when the last step ended, with its waiting
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        self.session.rows_ahead.allowed = lambda: self._ahead.allowed
        self.session.rows_ahead.outstanding = self._outstanding
        self.session.communicators.append(self)
        self.session.on_leave(self.stop)
        self.session.on_flush(self.flush)
        self.start()

    # Threads that train

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        values = to_host(self._pushes, env)
        with self._changed:
            if not self._is_running:
                raise RuntimeError("the communicator of this program was stopped; start it again before training on")
            self.staleness = max(self._stepped - self._used, self.session.rows_ahead.lag)
            self.worst_staleness = max(self.worst_staleness, self.staleness)
            if self._resumed is not None:
                self._ahead.stepped(time.perf_counter() - self._resumed)
            self._queue.add(self._pushes, values, self.session.seen, apart=self.session.to_catch_up > 0)
            self.session.step += 1
            self._stepped += 1
            mine = self._stepped
            self._wait_for(lambda: self._included >= mine - self._ahead.allowed)
            newest, self._newest = self._newest, {}
            self._used = self._included
            self.session.seen.update(self._versions)
            self._resumed = time.perf_counter()
        return newest

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition that pushes bring about, and pushes meanwhile if nobody else does."""
        while self._failure is None and not condition():
            if self._queue.steps and not self._is_pushing:
                self._push(pulls=True, shares=True)
            else:
                self._changed.wait()
        if self._failure is not None:
            raise self._failure
        self._changed.notify_all()  # what is still queued is for the thread

    def _outstanding(self) -> int:
        with self._changed:
            return self._stepped - self._pushed

    # Control

    def start(self) -> None:
        """Accepts steps, and sends in the background if parameters may lack some; until `stop`."""
        if self._is_running:
            return
        self._is_running = True
        if self.max_staleness:
            self._thread = threading.Thread(target=self._push_loop, name="push", daemon=True)
            self._thread.start()

    @property
    def queued(self) -> int:
        """Steps whose gradients wait to be pushed."""
        return self._queue.steps

    @property
    def is_running(self) -> bool:
        """Whether steps are accepted."""
        return self._is_running

    def flush(self) -> None:
        """Returns when servers have the gradients of every step so far."""
        with self._changed:
            target = self._stepped
            self._wait_for(lambda: self._pushed >= target)

    def stop(self) -> None:
        """Pushes what is queued; further steps are refused until `start`."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._is_running = False
                self._changed.notify_all()
            if self._thread is not None:
                self._thread.join()
                self._thread = None

    def receive(self) -> None:
        """Pulls parameters now; the next step uses them."""
        with self._changed:
            pushed = self._pushed
        replies = self.read()
        with self._changed:
            if pushed >= self._included:
                self._newest, self._versions, self._included = self.unpack(replies), versions_of(replies), pushed

    # Pushing

    def _push_loop(self) -> None:
        with self._changed:
            while self._failure is None and (self._is_running or self._queue.steps):
                if not self._queue.steps or self._is_pushing:
                    self._changed.wait()
                    continue
                if self._pacing.merge_wait:
                    self._changed.wait_for(self._is_worth_pushing, self._pacing.merge_wait)
                if self._queue.steps and not self._is_pushing:  # a step that waits may have pushed meanwhile
                    with suppress(Exception):  # the next step raises it
                        self._push()

    def _is_worth_pushing(self) -> bool:
        merged = self._pacing.max_merged
        return not self._is_running or (merged is not None and self._queue.steps >= merged)

    def _push(self, *, pulls: bool = False, shares: bool = False) -> None:
        """Pushes what is queued. The caller holds the lock, which is free while the message is under way.

        Args:
          pulls: whether to ask for the parameters even if it is not time to.
          shares: whether to ask for the rows that the next step will look up: the caller waits for the reply anyway.
        """
        merged, newest, versions = self._queue.take(), {}, {}
        shared: list[Expected] = []
        replies: Replies = {}
        pulls = pulls or self._pushed + merged.steps - self._included >= self._pacing.pull_after
        self.session.unknown_steps = min(self._ahead.allowed + 1, self.max_staleness)
        self._is_pushing, began = True, time.perf_counter()
        try:
            self._changed.release()
            try:
                gradients = merged.merged(self._pushes)
                messages = pack(gradients, self.pulls if pulls else NO_PULLS)
                if shares:
                    messages, shared = self.session.rows_ahead.share(messages)
                replies = self.session.push(messages, merged.steps, merged.seen)
                if pulls:
                    newest, versions = self.unpack(replies), versions_of(replies)
            finally:
                self._changed.acquire()
            self._ahead.replied(time.perf_counter() - began, [value for _, value in gradients])
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._is_pushing = False
            self._pushed += merged.steps
            self._changed.notify_all()
        if pulls:
            self._newest, self._versions, self._included = newest, versions, self._pushed
        if shared:
            included = self.session.step - (self._stepped - self._pushed)
            self.session.rows_ahead.receive(shared, replies, included)
