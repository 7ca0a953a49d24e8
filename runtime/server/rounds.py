"""When a server updates its parameters: decisions only, without sockets, threads, clocks or arrays.

The training mode decides what happens to a push: sync waits for all trainers, the others apply each push as it arrives.
Both remember the last applied sequence number of every trainer, so that a push that arrives twice is applied once.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class PushStatus(Enum):
    """What a server does with a push."""

    NEW = "new"  # keep it
    REPEATED = "repeated"  # a copy already waits for its round: keep the newer one
    APPLIED = "applied"  # only reply


class SyncRounds:
    """One update per round, from one push of every trainer that has not left."""

    waits = True

    def __init__(self, trainers: int):
        self.trainers = trainers
        self.round = 0
        self._pushed: dict[int, int] = {}
        self._applied: dict[int, int] = {}
        self._left: set[int] = set()

    def push(self, trainer: int, sequence: int) -> PushStatus:
        """Records a push that has arrived."""
        self._left.discard(trainer)
        if sequence <= self._applied.get(trainer, 0):
            return PushStatus.APPLIED
        repeated = trainer in self._pushed
        self._pushed[trainer] = sequence
        return PushStatus.REPEATED if repeated else PushStatus.NEW

    def leave(self, trainer: int) -> None:
        """Stops waiting for a trainer; what it has pushed already counts."""
        self._left.add(trainer)

    def due(self) -> Sequence[int]:
        """The trainers whose pushes make up the update that is due now, in order; none while a push is awaited."""
        return sorted(self._pushed) if self._pushed and not self.awaited() else ()

    def awaited(self) -> list[int]:
        """The trainers whose push of this round is missing."""
        return [t for t in range(self.trainers) if t not in self._pushed and t not in self._left]

    def applied(self) -> None:
        """Records that the due update was applied."""
        self._applied.update(self._pushed)
        self._pushed.clear()
        self.round += 1

    def counted(self, trainer: int) -> int:
        """The sequence number of the trainer's last push that was applied."""
        return self._applied.get(trainer, 0)


class ArrivalRounds:
    """One update per push, in order of arrival."""

    waits = False

    def __init__(self, trainers: int):
        self.trainers = trainers
        self.round = 0
        self._applied: dict[int, int] = {}
        self._due: tuple[int, int] | None = None

    def push(self, trainer: int, sequence: int) -> PushStatus:
        """Records a push that has arrived; it is due at once."""
        if sequence <= self._applied.get(trainer, 0):
            return PushStatus.APPLIED
        self._due = trainer, sequence
        return PushStatus.NEW

    def leave(self, trainer: int) -> None:
        """Does nothing: no update waits for a trainer."""

    def due(self) -> Sequence[int]:
        """The trainer whose push has just arrived, if it was not applied yet."""
        return () if self._due is None else (self._due[0],)

    def awaited(self) -> list[int]:
        """No trainer is ever awaited."""
        return []

    def applied(self) -> None:
        """Records that the due update was applied."""
        assert self._due is not None
        trainer, sequence = self._due
        self._applied[trainer] = sequence
        self._due = None
        self.round += 1

    def counted(self, trainer: int) -> int:
        """The sequence number of the trainer's last push that was applied."""
        return self._applied.get(trainer, 0)


Rounds = SyncRounds | ArrivalRounds


class LearningRatePace:
    """How far a learning-rate schedule has to be when updates do not come in rounds.

    One step of the schedule stands for one step of every trainer, as in sync mode.
    """

    def __init__(self, trainers: int):
        self._trainers = trainers
        self._pushed = 0
        self._advanced = 0

    def advance(self, steps: int) -> int:
        """How many steps the schedule must take before a push that stands for ``steps`` training steps is applied."""
        due = self._pushed // self._trainers + 1 - self._advanced
        self._advanced += due
        self._pushed += steps
        return due
