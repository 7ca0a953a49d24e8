"""Async training: a trainer that does not wait for servers.

A step queues its gradients and uses the newest parameters that have arrived; one thread pushes, another may pull. How
many steps a trainer may be ahead of what its parameters include is bounded, see `AsyncExchange.bound`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from refluid import flags
from refluid.places import Place
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import ExchangePlan
from refluid.runtime.trainer.merging import MergeQueue
from refluid.runtime.trainer.packing import NO_PULLS, Replies, pack, to_host

_PULL_THREAD = "FLAGS_communicator_independent_recv_thread"
_WAIT = 0.01  # seconds; FLAGS_communicator_send_wait_times counts waits of this length


class AsyncExchange(TrainerExchange):
    """Pushes and pulls on threads of its own while steps run."""

    def __init__(self, plan: ExchangePlan, place: Place):
        super().__init__(plan, place)
        self.declare()
        sums = flags.read_flag("FLAGS_communicator_is_sgd_optimizer")
        self._pushes = [replace(variable, adds=variable.adds or sums) for variable in plan.pushes]
        max_merged = max(1, flags.read_flag("FLAGS_communicator_max_merge_var_num"))
        capacity = max(1, flags.read_flag("FLAGS_communicator_send_queue_size"))
        # A pull is due after this many steps were pushed; sooner is not worth its bytes. Fluid's flag counts gradients.
        gradients = flags.read_flag("FLAGS_communicator_min_send_grad_num_before_recv")
        max_staleness = max(1, flags.read_flag("FLAGS_communicator_max_staleness"))
        # One half of the steps that a trainer may be ahead is in flight while it takes the other half.
        half = max(1, max_staleness // 2)
        self._pull_after = min(max(1, -(-gradients // max(1, len(plan.pushes)))), half)
        self._worth_pushing = min(max_merged, capacity, half)
        self._merge_timeout = flags.read_flag("FLAGS_communicator_send_wait_times") * _WAIT
        # One message that pushes and pulls costs half of two, so the pull thread is opt-in.
        self._has_pull_thread = flags.is_given(_PULL_THREAD) and flags.read_flag(_PULL_THREAD)
        self.bound = min(capacity + max_merged + self._pull_after, max_staleness)
        self.staleness = 0  # steps of this trainer that its parameters did not include, at the last step
        self.worst_staleness = 0
        self._queue = MergeQueue(capacity, max_merged)
        self._changed = threading.Condition()  # guards what follows
        self._stepped = 0  # steps taken
        self._pushed = 0  # steps that servers have applied
        self._included = 0  # steps that the newest parameters include
        self._newest: dict[str, Any] = {}
        self._stopping = False
        self._blocked = 0  # threads that wait for gradients to be pushed
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self.session.communicators.append(self)
        self.session.on_leave(self.stop)
        self.session.on_flush(self.flush)
        self.start()

    # The training thread

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        pushes = self._pushes
        values = to_host(pushes, env)
        with self._changed:
            self.session.step += 1
            if not self._threads and self._failure is None:
                raise RuntimeError("the communicator of this program was stopped; start it again before training on")
            self._wait_for(lambda: not (self._queue.full or self._too_far_ahead()))
            self._queue.add(pushes, values)
            self._stepped += 1
            self.staleness = self._stepped - 1 - self._included
            self.worst_staleness = max(self.worst_staleness, self.staleness)
            self._changed.notify_all()
            newest, self._newest = self._newest, {}
        return newest

    def _too_far_ahead(self) -> bool:
        return self._stepped - self._included >= self.bound

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition that a push brings about; pushes do not wait for more steps meanwhile."""
        if not condition():
            self._blocked += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failure or condition())
            self._blocked -= 1
        if self._failure is not None:
            raise self._failure

    # The threads that push and pull

    def start(self) -> None:
        """Starts the threads; they run until `stop`."""
        if self._threads:
            return
        self._stopping = False
        loops = [self._push_loop, self._pull_loop] if self._has_pull_thread else [self._push_loop]
        self._threads = [
            threading.Thread(target=self._guarded, args=(loop,), name=loop.__name__.strip("_"), daemon=True)
            for loop in loops
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        """Steps whose gradients wait to be pushed."""
        return self._queue.steps

    @property
    def is_running(self) -> bool:
        """Whether the threads run."""
        return bool(self._threads)

    def flush(self) -> None:
        """Returns when servers have the gradients of every step so far."""
        with self._changed:
            self._wait_for(lambda: self._pushed == self._stepped or not self._threads)

    def stop(self) -> None:
        """Pushes what is queued, then ends the threads."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def receive(self) -> None:
        """Pulls parameters now; the next step uses them."""
        with self._changed:
            pushed = self._pushed
        replies = self.read()
        with self._changed:
            if pushed >= self._included:
                self._update_newest(replies, pushed)

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:  # noqa: BLE001 - the next step raises it
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _push_loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue.steps or self._stopping)
                # One message for several steps costs as much as one for a single step.
                self._changed.wait_for(self._is_worth_pushing, self._merge_timeout)
                if not self._queue.steps:
                    return
                merged = self._queue.take()
                pulls = not self._has_pull_thread and self._pushed + merged.steps - self._included >= self._pull_after
                self._changed.notify_all()
            messages = pack(merged.merged(self._pushes), self.pulls if pulls else NO_PULLS)
            replies = self.session.push(messages, merged.steps)
            with self._changed:
                self._pushed += merged.steps
                if pulls:
                    self._update_newest(replies, self._pushed)
                self._changed.notify_all()

    def _is_worth_pushing(self) -> bool:
        return self._blocked > 0 or self._stopping or self._queue.steps >= self._worth_pushing

    def _pull_loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pushed - self._included >= self._pull_after or self._stopping)
                if self._stopping:
                    return
                pushed = self._pushed
            replies = self.read()
            with self._changed:
                self._update_newest(replies, pushed)
                self._changed.notify_all()

    def _update_newest(self, replies: Replies, included: int) -> None:
        self._newest = self.unpack(replies)
        self._included = included
