"""Half-async training: a trainer merges the gradients of some steps, then exchanges them.

Steps of several threads and steps of one thread count alike: whoever hands over the last gradient of a merge sends it
and waits for the servers, and all go on with what comes back. Nobody waits for a step that may never be taken, so a
count that does not divide the number of steps is fine: the rest is sent when the trainer saves, stops or leaves.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refluid import flags
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import Sliced, Traffic
from refluid.runtime.trainer.merging import Batch
from refluid.runtime.trainer.packing import on_host
from refluid.runtime.transport.wire import Value

_MERGED = "FLAGS_communicator_max_merge_var_num"

PushAndPull = Callable[[Sequence[tuple[Sliced, Value]], int], dict[str, Any]]


def steps_per_exchange() -> int:
    """How many steps are merged: what a script or the environment says, else one per thread as CPU_NUM counts them."""
    return max(1, flags.read_flag(_MERGED) if flags.is_given(_MERGED) else int(os.environ.get("CPU_NUM", "1")))


class HalfAsync(TrainerExchange):
    """Steps hand their gradients over; every so many of them are averaged into one push, with a pull.

    Args:
      exchange: pushes gradients that stand for a number of steps, and gives the parameters that come back.
    """

    def __init__(self, traffic: Traffic, place: Any, exchange: PushAndPull):
        super().__init__(traffic, place)
        self._exchange = exchange
        self.merges = steps_per_exchange()
        self.bound = self.merges - 1
        self.staleness = 0  # steps of this trainer that its parameters did not show, at the last step
        self.worst_staleness = 0
        self.is_running = True
        self._lock = threading.Lock()  # guards what follows, and lets one exchange happen at a time
        self._batch = Batch()
        self._fresh: dict[str, Any] = {}  # parameters that no step has taken over yet
        self.session.communicators.append(self)
        self.session.on_flush(self.flush)
        self.session.on_leave(self.stop)

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        pushes = self.traffic.pushes
        values = [on_host(env[variable.name]) for variable in pushes]
        with self._lock:
            if not self.is_running:
                raise RuntimeError("the communicator of this program was stopped; start it again before training on")
            self.session.step += 1
            self.staleness = self._batch.steps
            self.worst_staleness = max(self.worst_staleness, self.staleness)
            self._batch.add(pushes, values)
            if self._batch.steps >= self.merges:
                self._send()
            fresh, self._fresh = self._fresh, {}
        return fresh

    def _send(self) -> None:
        batch, self._batch = self._batch, Batch()
        self._fresh = self._exchange(batch.merged(self.traffic.pushes), batch.steps)

    @property
    def queued(self) -> int:
        """Steps whose gradients wait to be sent."""
        return self._batch.steps

    def flush(self) -> None:
        """Sends what was merged so far; the next step takes over the parameters that come back."""
        with self._lock:
            if self._batch.steps:
                self._send()

    def start(self) -> None:
        """Lets training go on after `stop`."""
        self.is_running = True

    def stop(self) -> None:
        """Sends what was merged so far; further steps are refused until `start`."""
        self.flush()
        self.is_running = False

    def receive(self) -> None:
        """Pulls parameters now; the next step takes them."""
        with self._lock:
            self._fresh = self.pulled(self.read())
