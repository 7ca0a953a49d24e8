"""What a server counts: for its /metrics, and for ``refluid status``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from refluid.log import Log
from refluid.runtime.observe.metrics import Endpoint, Metrics, quantiles, serve_if_requested, value_of
from refluid.runtime.server.membership import Membership


class ServerMetrics:
    """The metrics of one server.

    Args:
        endpoint: where it listens.
        mode: its training mode.
        membership: its trainers.
        round: gives the number of updates it has applied.
        queued: gives the number of pushes that wait for those of other trainers.
    """

    def __init__(
        self, endpoint: str, mode: str, membership: Membership, round: Callable[[], int], queued: Callable[[], int]
    ) -> None:
        self._endpoint, self._mode, self._membership = endpoint, mode, membership
        self._round, self._queued = round, queued
        self._pulled: dict[int, int] = {}  # trainer -> the round whose parameters it has
        self._staleness: dict[int, int] = {}  # trainer -> how many updates its last push did not know of
        metrics = self.metrics = Metrics(role="server", endpoint=endpoint, mode=mode)
        self._received = metrics.counter("bytes_received_total", "Bytes of requests of trainers and other servers")
        self._sent = metrics.counter("bytes_sent_total", "Bytes of replies")
        self._pushes = metrics.counter("pushes_total", "Pushes of gradients or differences")
        self._pulls = metrics.counter("pulls_total", "Replies with parameters or rows of tables")
        self._refused = metrics.counter("refused_total", "Requests that ended with an error")
        self._exchanges = metrics.histogram("exchange_seconds", "From a request to its reply, waiting included")
        self._updates = metrics.histogram("update_seconds", "One update of all that the server holds")
        metrics.gauge("round", "Updates applied", round)
        metrics.gauge("queue_depth", "Pushes that wait for those of other trainers", queued)
        metrics.gauge("trainers", "Trainers that have joined and not left", lambda: len(membership.present()))
        for name, help, read in (
            ("last_seen_seconds", "Since the last message of a trainer; NaN before it joins", self._last_seen),
            ("trainer_steps", "Steps of a trainer that were applied here", self._steps),
            ("staleness", "Updates that a trainer's last push did not know of", self._stale),
        ):
            reads = {str(trainer): lambda trainer=trainer, read=read: read(trainer) for trainer in membership.members}
            metrics.gauges(name, help, "trainer", reads)

    def serve(self) -> Endpoint | None:
        """Starts /metrics if the environment requests it."""
        return serve_if_requested(self.metrics, Log("server", endpoint=self._endpoint))

    # Recording

    def called(self, method: str, received: int, sent: int, seconds: float) -> None:
        """Records a request that was served."""
        self._received.inc(received)
        self._sent.inc(sent)
        if method == "Exchange":
            self._exchanges.observe(seconds)

    def refused(self) -> None:
        """Records a request that ended with an error."""
        self._refused.inc()

    def pushed(self, trainer: int) -> None:
        """Records a push."""
        self._pushes.inc()
        self._staleness[trainer] = self._round() - self._pulled.get(trainer, 0)

    def pulled(self, trainer: int) -> None:
        """Records that a trainer gets the current parameters."""
        self._pulls.inc()
        self._pulled[trainer] = self._round()

    def updated(self, seconds: float) -> None:
        """Records an update."""
        self._updates.observe(seconds)

    # Reading

    def status(self, awaited: list[int]) -> dict[str, Any]:
        """All of it, for people and dashboards; it becomes JSON."""
        return {
            "role": "server",
            "endpoint": self._endpoint,
            "mode": self._mode,
            "round": self._round(),
            "awaited": awaited,
            "queue_depth": self._queued(),
            "pushes": value_of(self._pushes),
            "pulls": value_of(self._pulls),
            "refused": value_of(self._refused),
            "bytes_received": value_of(self._received),
            "bytes_sent": value_of(self._sent),
            "exchange_ms": _milliseconds(quantiles(self._exchanges)),
            "update_ms": _milliseconds(quantiles(self._updates)),
            "trainers": [self._trainer(trainer) for trainer in self._membership.members],
        }

    def _trainer(self, trainer: int) -> dict[str, Any]:
        member, seen = self._membership.members[trainer], self._last_seen(trainer)
        return {
            "trainer": trainer,
            "host": member.host,
            "joined": member.joined is not None,
            "left": member.left,
            "last_seen": None if math.isnan(seen) else round(seen, 3),
            "steps": member.steps,
            "staleness": self._stale(trainer),
        }

    def _last_seen(self, trainer: int) -> float:
        seen = self._membership.members[trainer].seen
        return math.nan if seen is None else time.monotonic() - seen

    def _steps(self, trainer: int) -> int:
        return self._membership.members[trainer].steps

    def _stale(self, trainer: int) -> int:
        return self._staleness.get(trainer, 0)


def _milliseconds(seconds: dict[str, float] | None) -> dict[str, float] | None:
    return None if seconds is None else {name: round(1000 * value, 3) for name, value in seconds.items()}
