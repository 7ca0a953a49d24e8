"""What a server counts: for its /metrics, and for ``refluid status``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from refluid.runtime.observe.metrics import Endpoint, Metrics, serve_if_asked
from refluid.runtime.server.membership import Membership


class ServerMetrics:
    """The numbers of one server.

    Args:
        endpoint: where it listens.
        mode: its training mode.
        membership: its trainers.
        round: asked for the number of updates it has applied.
        waiting: asked for the number of pushes that wait for others.
    """

    def __init__(
        self, endpoint: str, mode: str, membership: Membership, round: Callable[[], int], waiting: Callable[[], int]
    ) -> None:
        self._endpoint, self._mode, self._membership = endpoint, mode, membership
        self._round, self._waiting = round, waiting
        self._pulled: dict[int, int] = {}  # trainer -> the round it has seen last
        self._stale: dict[int, int] = {}  # trainer -> how many updates its last push had missed
        metrics = self.metrics = Metrics(role="server", endpoint=endpoint, mode=mode)
        self._received = metrics.counter("bytes_received_total", "Bytes of messages from trainers and other servers")
        self._sent = metrics.counter("bytes_sent_total", "Bytes of answers")
        self._pushes = metrics.counter("pushes_total", "Pushes of gradients or differences")
        self._pulls = metrics.counter("pulls_total", "Answers with parameters or rows of tables")
        self._refused = metrics.counter("refused_total", "Calls that ended with an error")
        self._exchanges = metrics.histogram("exchange_seconds", "From a message to the answer, waiting included")
        self._updates = metrics.histogram("update_seconds", "One update of all that the server holds")
        metrics.gauge("round", "Updates applied", read=round)
        metrics.gauge("queue_depth", "Pushes that wait for those of other trainers", read=waiting)
        metrics.gauge("trainers", "Trainers that have joined and not left", read=lambda: len(membership.present()))
        members = membership.members
        for trainer in members:
            metrics.gauge(
                "last_seen_seconds",
                "Since a trainer was heard of; NaN before it joins",
                read=lambda trainer=trainer: _age(members[trainer].seen),
                trainer=trainer,
            )
            metrics.gauge(
                "trainer_steps",
                "Steps of a trainer that count here",
                read=lambda trainer=trainer: members[trainer].steps,
                trainer=trainer,
            )
            metrics.gauge(
                "staleness",
                "Updates that a trainer's last push had not seen",
                read=lambda trainer=trainer: self._stale.get(trainer, 0),
                trainer=trainer,
            )

    def serve(self) -> Endpoint | None:
        """Starts /metrics if the environment asks for it."""
        return serve_if_asked(self.metrics, f"server {self._endpoint}")

    # Recording

    def called(self, method: str, received: int, sent: int, seconds: float) -> None:
        """A call was answered."""
        self._received.add(received)
        self._sent.add(sent)
        if method == "Exchange":
            self._exchanges.observe(seconds)

    def refused(self) -> None:
        """A call ended with an error."""
        self._refused.add()

    def pushed(self, trainer: int) -> None:
        """A trainer's push has arrived."""
        self._pushes.add()
        self._stale[trainer] = self._round() - self._pulled.get(trainer, 0)

    def pulled(self, trainer: int) -> None:
        """A trainer gets what the server has now."""
        self._pulls.add()
        self._pulled[trainer] = self._round()

    def updated(self, seconds: float) -> None:
        """An update was applied."""
        self._updates.observe(seconds)

    # Telling

    def status(self, awaited: list[int]) -> dict[str, Any]:
        """All of it, for people and dashboards; it becomes JSON."""
        return {
            "role": "server",
            "endpoint": self._endpoint,
            "mode": self._mode,
            "round": self._round(),
            "awaited": awaited,
            "queue_depth": self._waiting(),
            "pushes": self._pushes.value,
            "pulls": self._pulls.value,
            "refused": self._refused.value,
            "bytes_received": self._received.value,
            "bytes_sent": self._sent.value,
            "exchange_ms": _milliseconds(self._exchanges),
            "update_ms": _milliseconds(self._updates),
            "trainers": [
                {
                    "trainer": trainer,
                    "joined": member.joined is not None,
                    "left": member.left,
                    "last_seen": None if member.seen is None else round(_age(member.seen), 3),
                    "steps": member.steps,
                    "staleness": self._stale.get(trainer, 0),
                }
                for trainer, member in self._membership.members.items()
            ],
        }


def _age(seen: float | None) -> float:
    return float("nan") if seen is None else time.monotonic() - seen


def _milliseconds(histogram: Any) -> dict[str, float] | None:
    if not histogram.count:
        return None
    return {f"p{fraction * 100:g}": round(1000 * histogram.quantile(fraction), 3) for fraction in (0.5, 0.99)}
