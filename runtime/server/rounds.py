"""When a server updates its parameters: decisions only. No socket, thread, clock or array is known here.

A mode decides what happens to a push: sync waits for everybody, the others apply what arrives. Both remember, per
trainer, the last sequence number that counts, so that a push that arrives twice is applied once.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class Verdict(Enum):
    """What a push is."""

    NEW = "new"  # keep it
    AGAIN = "again"  # it is here already and waits for its round: keep the newer copy
    OLD = "old"  # it has been applied: only answer


class SyncRounds:
    """One update per round, from one push of every trainer that has not left."""

    waits = True

    def __init__(self, trainers: int):
        self.trainers = trainers
        self.round = 0
        self._pushed: dict[int, int] = {}
        self._applied: dict[int, int] = {}
        self._left: set[int] = set()

    def push(self, trainer: int, sequence: int) -> Verdict:
        """A push has arrived."""
        self._left.discard(trainer)
        if sequence <= self._applied.get(trainer, 0):
            return Verdict.OLD
        again = trainer in self._pushed
        self._pushed[trainer] = sequence
        return Verdict.AGAIN if again else Verdict.NEW

    def leave(self, trainer: int) -> None:
        """A trainer will push no more; what it pushed already counts."""
        self._left.add(trainer)

    def due(self) -> Sequence[int]:
        """The trainers whose pushes make up an update that is due now, in order; none if somebody is awaited."""
        return sorted(self._pushed) if self._pushed and not self.awaited() else ()

    def awaited(self) -> list[int]:
        """The trainers whose push of this round is missing."""
        return [t for t in range(self.trainers) if t not in self._pushed and t not in self._left]

    def applied(self) -> None:
        """The update that was due has happened."""
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

    def push(self, trainer: int, sequence: int) -> Verdict:
        """A push has arrived; it is due at once."""
        if sequence <= self._applied.get(trainer, 0):
            return Verdict.OLD
        self._due = trainer, sequence
        return Verdict.NEW

    def leave(self, trainer: int) -> None:
        """Nobody waits for anybody here."""

    def due(self) -> Sequence[int]:
        """The trainer whose push has just arrived."""
        return () if self._due is None else (self._due[0],)

    def awaited(self) -> list[int]:
        """Nobody."""
        return []

    def applied(self) -> None:
        """The update that was due has happened."""
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
    """How far a learning-rate schedule should be when updates do not come in rounds.

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
