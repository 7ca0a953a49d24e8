"""What a server counts: for its /metrics, and for ``refluid status``."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence, Sized
from functools import partial
from typing import Any, Protocol

from refluid.log import Log
from refluid.runtime.observe.metrics import COUNT_BUCKETS, Metrics, quantiles, value_of
from refluid.runtime.server.membership import Membership
from refluid.runtime.server.rounds import Rounds

_EXACT = 1000  # steps; so many different numbers of them are counted apart


class MeteredTable(Protocol):
    """A table that grows, as metrics see it."""

    @property
    def name(self) -> str: ...
    @property
    def budget(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def most_rows(self) -> int | None: ...
    @property
    def evicted(self) -> int: ...


class RecoveryStatus(Protocol):
    """What a server keeps on disk, as metrics see it."""

    def status(self) -> dict[str, Any]: ...


class ServerMetrics(Metrics):
    """The metrics of one server.

    Args:
        endpoint: where it listens.
        mode: its training mode.
        membership: its trainers.
        rounds: its updates.
        queue: the pushes that wait for those of other trainers.
        tables: its tables that grow.
    """

    def __init__(
        self,
        endpoint: str,
        mode: str,
        membership: Membership,
        rounds: Rounds,
        queue: Sized,
        tables: Sequence[MeteredTable] = (),
    ) -> None:
        super().__init__(Log("server", endpoint=endpoint), role="server", endpoint=endpoint, mode=mode)
        self._endpoint, self._mode, self._membership = endpoint, mode, membership
        self._rounds, self._queue, self._tables = rounds, queue, tables
        self._staleness: dict[int, int] = {}  # trainer -> that of its last push
        self._stalenesses: Counter[int] = Counter()  # of all pushes
        self._received = self.counter("bytes_received_total", "Bytes of requests of trainers and other servers")
        self._sent = self.counter("bytes_sent_total", "Bytes of replies")
        self._pushes = self.counter("pushes_total", "Pushes of gradients or differences")
        self._pulls = self.counter("pulls_total", "Replies with parameters or rows of tables")
        self.refused = self.counter("refused_total", "Requests that ended with an error")
        self._exchanges = self.histogram("exchange_seconds", "From a request to its reply, waiting included")
        self.lost = self.counter("lost_updates_total", "Updates that were applied and that a restart has lost")
        self.snapshot_pause_seconds = self.histogram("snapshot_pause_seconds", "Updates that waited for a snapshot")
        self.recovery: RecoveryStatus | None = None
        self.update_seconds = self.histogram("update_seconds", "One update of all that the server holds")
        self._push_staleness = self.histogram(
            "push_staleness", "Steps that were applied and that a push's parameters did not include", COUNT_BUCKETS
        )
        self.gauge("round", "Updates applied", lambda: rounds.round)
        self.gauge("queue_depth", "Pushes that wait for those of other trainers", lambda: len(queue))
        self.gauge("trainers", "Trainers that have joined and not left", lambda: len(membership.present()))
        per_trainer = (
            ("last_seen_seconds", "Since the last message of a trainer; NaN before it joins", self._last_seen),
            ("trainer_steps", "Steps of a trainer that were applied here", self._steps),
            ("staleness", "Steps that the parameters of a trainer's last push did not include", self._stale),
            ("max_staleness", "Own steps that a trainer's parameters may lack", self._max_staleness),
            ("max_lead", "Steps that a trainer may be ahead of the slowest; NaN without a bound", self._max_lead),
            ("last_push_seconds", "Since the last push of a trainer; NaN before it pushes", self._last_push),
            ("steps_behind", "Steps that a trainer is behind the one that is furthest", self._behind),
        )
        self._per_trainer = [(self.gauges(name, help, "trainer", {}), read) for name, help, read in per_trainer]
        for trainer in membership.members:
            self.add_trainer(trainer)

        for name, help, read in (
            ("table_rows", "Rows of a table that grows", lambda table: table.rows),
            ("table_bytes", "Memory that a table takes", lambda table: table.bytes),
            ("table_budget_bytes", "Memory that a table may take; 0 for any", lambda table: table.budget),
            ("table_evicted_rows", "Rows of a table that were given up", lambda table: table.evicted),
        ):
            self.gauges(name, help, "table", {table.name: partial(read, table) for table in tables})

    # Recording

    def add_trainer(self, trainer: int) -> None:
        """Begins to report a trainer."""
        for gauges, read in self._per_trainer:
            self.add_to(gauges, "trainer", str(trainer), partial(read, trainer))

    def called(self, method: str, received: int, sent: int, seconds: float) -> None:
        """Records a request that was served."""
        self._received.inc(received)
        self._sent.inc(sent)
        if method == "Exchange":
            self._exchanges.observe(seconds)

    def applied(self, trainer: int, staleness: int) -> None:
        """Records a push that was applied, and how many steps its parameters did not include."""
        self._pushes.inc()
        self._staleness[trainer] = staleness
        self._stalenesses[_rounded(staleness)] += 1
        self._push_staleness.observe(staleness)

    def pulled(self) -> None:
        """Records a reply with parameters or rows."""
        self._pulls.inc()

    # Reading

    def status(self, awaited: list[int]) -> dict[str, Any]:
        """All of it, for people and dashboards; it becomes JSON."""
        return {
            "role": "server",
            "endpoint": self._endpoint,
            "mode": self._mode,
            "round": self._rounds.round,
            "awaited": awaited,
            "queue_depth": len(self._queue),
            "pushes": value_of(self._pushes),
            "pulls": value_of(self._pulls),
            "refused": value_of(self.refused),
            "bytes_received": value_of(self._received),
            "bytes_sent": value_of(self._sent),
            "exchange_ms": _milliseconds(quantiles(self._exchanges)),
            "update_ms": _milliseconds(quantiles(self.update_seconds)),
            "staleness": {str(steps): self._stalenesses[steps] for steps in sorted(self._stalenesses)},
            "tables": [
                {
                    "table": table.name,
                    "rows": table.rows,
                    "bytes": table.bytes,
                    "budget": table.budget,
                    "most_rows": table.most_rows,
                    "evicted": table.evicted,
                }
                for table in self._tables
            ],
            "lost_updates": value_of(self.lost),
            "recovery": None if self.recovery is None else self.recovery.status(),
            "trainers": [self._trainer(trainer) for trainer in self._membership.members],
        }

    def _trainer(self, trainer: int) -> dict[str, Any]:
        member, seen = self._membership.members[trainer], self._last_seen(trainer)
        return {
            "trainer": trainer,
            "host": member.host,
            "joined": member.joined is not None,
            "left": member.left,
            "last_seen": _seconds(seen),
            "steps": member.steps,
            "staleness": self._stale(trainer),
            "max_staleness": member.max_staleness,
            "max_lead": member.max_lead,
            "behind": self._behind(trainer),
            "last_push": _seconds(self._last_push(trainer)),
            "idle": None if member.active is None else round(time.monotonic() - member.active, 3),
            "doing": member.doing,
            "lost": member.lost,
            "left_out": member.evicted,
        }

    def _last_seen(self, trainer: int) -> float:
        seen = self._membership.members[trainer].seen
        return math.nan if seen is None else time.monotonic() - seen

    def _last_push(self, trainer: int) -> float:
        pushed = self._membership.members[trainer].pushed
        return math.nan if pushed is None else time.monotonic() - pushed

    def _behind(self, trainer: int) -> int:
        return self._membership.behind(trainer)

    def _steps(self, trainer: int) -> int:
        return self._membership.members[trainer].steps

    def _stale(self, trainer: int) -> int:
        return self._staleness.get(trainer, 0)

    def _max_staleness(self, trainer: int) -> int:
        return self._membership.members[trainer].max_staleness

    def _max_lead(self, trainer: int) -> float:
        lead = self._membership.members[trainer].max_lead
        return math.nan if lead is None else lead


def _rounded(steps: int) -> int:
    """A number of steps; of a large one, which a push may say that makes no sense, two digits."""
    unit = 10 ** max(0, len(str(steps)) - 2) if steps >= _EXACT else 1
    return steps // unit * unit


def _seconds(age: float) -> float | None:
    return None if math.isnan(age) else round(age, 3)


def _milliseconds(seconds: dict[str, float] | None) -> dict[str, float] | None:
    return None if seconds is None else {name: round(1000 * value, 3) for name, value in seconds.items()}
