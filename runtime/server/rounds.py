"""When a server updates its parameters: decisions only, without sockets, threads, clocks or arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Rounds:
    """Collects pushes until an update is due.

    In sync mode (``waits``) an update takes one push of every trainer that has not left; in the other modes a push is
    an update of its own. A push that arrives twice is applied once.
    """

    def __init__(self, trainers: int, waits: bool):
        self.trainers, self.waits = trainers, waits
        self.round = 0
        self.version = 0  # training steps, of all trainers together, that were applied
        self._pushed: dict[int, int] = {}  # trainer -> the sequence number of its push that waits
        self._applied: dict[int, int] = {}  # trainer -> that of its last push that was applied
        self._gone: dict[int, int] = {}  # trainer -> that of its last push that a restart has lost for good
        self._refused: dict[int, int] = {}  # trainer -> that of its last push whose update has failed
        self._left: set[int] = set()
        self.lost = 0  # pushes that were applied before a restart and are in no snapshot

    def state(self) -> dict[str, Any]:
        """What a restarted server must know, as plain data."""
        applied = {str(trainer): sequence for trainer, sequence in self._applied.items()}
        return {"round": self.round, "version": self.version, "applied": applied, "left": sorted(self._left)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.round, self.version = state["round"], state["version"]
        self._applied = {int(trainer): sequence for trainer, sequence in state["applied"].items()}
        self._left = set(state["left"])

    def push(self, trainer: int, sequence: int) -> bool:
        """Records a push that has arrived; returns False if it was applied before and only needs a reply."""
        self._left.discard(trainer)
        if sequence <= self._applied.get(trainer, 0):
            return False
        self._pushed[trainer] = sequence
        return True

    def give_up(self, trainer: int, sequence: int) -> None:
        """Pushes until this one do not come any more: their trainer has had replies to them before a restart."""
        self._gone[trainer] = sequence

    def lacks(self, trainer: int, sequence: int) -> bool:
        """Whether pushes until this one are still to be applied."""
        return max(known.get(trainer, 0) for known in (self._applied, self._gone, self._refused)) < sequence

    def retract(self, trainer: int) -> bool:
        """A new process goes on for a trainer: forgets a push that waits for its update; whether there was one."""
        self._gone.pop(trainer, None)
        self._refused.pop(trainer, None)
        return self._pushed.pop(trainer, None) is not None

    def leave(self, trainer: int) -> None:
        """Stops waiting for a trainer; what it has pushed already counts."""
        self._left.add(trainer)

    def lacking(self, trainer: int, sequence: int) -> int:
        """How many pushes until this one, which was acknowledged, a restart has lost."""
        known = max(each.get(trainer, 0) for each in (self._pushed, self._applied, self._refused))
        return max(0, sequence - known)

    def due(self) -> list[int]:
        """The trainers whose pushes make up the update that is due now, in order; none while a push is awaited."""
        return sorted(self._pushed) if self._pushed and not self.awaited() else []

    def awaited(self) -> list[int]:
        """The trainers whose push the next update waits for."""
        if not self.waits:
            return []
        return [t for t in range(self.trainers) if t not in self._pushed and t not in self._left]

    def skip_lost(self) -> int:
        """Skips rounds that were applied before a restart and lost with it; returns how many pushes were lost.

        Every trainer numbers its pushes without a gap: a gap before those of the due update is what was lost, unless
        their trainer was told that it has failed.
        """
        before = {each: max(self._applied.get(each, 0), self._refused.get(each, 0)) for each in self._pushed}
        gaps = [max(0, sequence - before[trainer] - 1) for trainer, sequence in self._pushed.items()]
        lost = sum(gaps)
        if lost:
            self.lost += lost
            self.round += max(gaps) if self.waits else lost
        return lost

    def has(self, trainer: int, sequence: int) -> bool:
        """Whether a push has arrived here, applied or not."""
        return max(self._pushed.get(trainer, 0), self._applied.get(trainer, 0)) >= sequence

    def applied(self, steps: int) -> None:
        """Records that the due update was applied, which stands for a number of training steps."""
        self._applied.update(self._pushed)
        self._pushed.clear()
        self.round += 1
        self.version += steps

    def discard(self) -> None:
        """Forgets the pushes of an update that failed."""
        self._refused.update(self._pushed)
        self._pushed.clear()

    def all_counted(self) -> dict[int, int]:
        """Of every trainer, the sequence number of its last push that was applied."""
        return dict(self._applied)

    def counted(self, trainer: int) -> int:
        """The sequence number of the trainer's last push that was applied."""
        return self._applied.get(trainer, 0)


class LearningRatePace:
    """How far a learning-rate schedule has to be when updates do not come in rounds.

    One step of the schedule stands for one step of every trainer, as in sync mode.
    """

    def __init__(self, trainers: int):
        self._trainers = trainers  # that the job began with
        self._counted = trainers  # that take part
        self._before = 0  # steps of the schedule until this number has changed
        self._pushed = 0  # training steps since
        self._advanced = 0

    def state(self) -> list[int]:
        """What a restarted server must know, as plain data."""
        return [self._counted, self._before, self._pushed, self._advanced]

    def restore(self, state: Sequence[int]) -> None:
        """The inverse of `state`."""
        self._counted, self._before, self._pushed, self._advanced = state

    def due(self, present: int = 0) -> int:
        """How many steps the schedule must take before the next push is applied.

        ``present`` counts the trainers that take part now; more than the job began with slow the schedule down.
        """
        self._count(max(self._trainers, present))
        return self._taken() - self._advanced

    def applied(self, steps: int) -> None:
        """Records that the schedule has taken them, and that the push was applied, which stands for so many steps."""
        self._advanced = self._taken()
        self._pushed += steps

    def _taken(self) -> int:
        return self._before + self._pushed // self._counted + 1

    def _count(self, trainers: int) -> None:
        if trainers != self._counted:
            done, rest = divmod(self._pushed, self._counted)
            self._before, self._pushed = self._before + done, rest * trainers // self._counted
            self._counted = trainers
