"""Half-async training: a trainer merges the gradients of several steps, then exchanges them.

Steps of several threads and steps of one thread count alike: the step that completes a merge sends it and waits for the
servers, and all continue with the parameters that come back. No step waits for one that may never be taken, so the
count need not divide the number of steps: the rest is sent when the trainer saves, stops or leaves.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refluid import flags
from refluid.places import Place
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import ExchangePlan, SlicedVariable
from refluid.runtime.trainer.merging import MergedSteps
from refluid.runtime.trainer.pacing import max_lead
from refluid.runtime.trainer.packing import Versions, to_host
from refluid.runtime.transport.wire import Value

_MERGED = "FLAGS_communicator_max_merge_var_num"

PushAndPull = Callable[[Sequence[tuple[SlicedVariable, Value]], int, Versions], dict[str, Any]]


def steps_per_exchange() -> int:
    """How many steps are merged: the flag if it is set, else one per thread as CPU_NUM counts them."""
    return max(1, flags.read_flag(_MERGED) if flags.is_given(_MERGED) else int(os.environ.get("CPU_NUM", "1")))


class HalfAsyncExchange(TrainerExchange):
    """Averages the gradients of every n steps into one push, with a pull.

    Args:
      exchange: pushes gradients that stand for a number of steps, and returns the parameters that come back.
    """

    def __init__(self, plan: ExchangePlan, place: Place, exchange: PushAndPull):
        super().__init__(plan, place)
        self._exchange = exchange
        self.merges = steps_per_exchange()
        self.max_staleness = self.session.max_staleness = self.merges - 1
        self.session.unknown_steps = self.max_staleness
        self.session.max_lead = max_lead(self.max_staleness, f"half-async training merges {self.merges} steps")
        self.staleness = 0  # steps of this trainer that its parameters did not include, at the last step
        self.worst_staleness = 0
        self._is_running = True
        self._lock = threading.Lock()  # guards what follows, and lets one exchange happen at a time
        self._merged = MergedSteps()
        self._fresh: dict[str, Any] = {}  # parameters that no step has used yet
        self.session.communicators.append(self)
        self.session.on_flush(self.flush)
        self.session.on_leave(self.stop)

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        pushes = self.plan.pushes
        values = to_host(pushes, env)
        with self._lock:
            if not self._is_running:
                raise RuntimeError("the communicator of this program was stopped; start it again before training on")
            self.session.step += 1
            self.staleness = self._merged.steps
            self.worst_staleness = max(self.worst_staleness, self.staleness)
            self._merged.add(pushes, values, self.session.seen)
            if self._merged.steps >= self.session.steps_to_merge(self.merges):
                self._send()
            fresh, self._fresh = self._fresh, {}
        return fresh

    def _send(self) -> None:
        merged, self._merged = self._merged, MergedSteps()
        self._fresh = self._exchange(merged.merged(self.plan.pushes), merged.steps, merged.seen)

    @property
    def queued(self) -> int:
        """Steps whose gradients wait to be sent."""
        return self._merged.steps

    @property
    def is_running(self) -> bool:
        """Whether steps are accepted."""
        return self._is_running

    def flush(self) -> None:
        """Sends what is merged so far; the next step uses the parameters that come back."""
        with self._lock:
            if self._merged.steps:
                self._send()

    def start(self) -> None:
        """Accepts steps again after `stop`."""
        self._is_running = True

    def stop(self) -> None:
        """Sends what is merged so far; further steps are refused until `start`."""
        self.flush()
        self._is_running = False

    def receive(self) -> None:
        """Pulls parameters now; the next step uses them."""
        with self._lock:
            replies = self.read()
            self.session.use(replies)
            self._fresh = self.unpack(replies)
