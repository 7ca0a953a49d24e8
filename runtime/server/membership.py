"""Which trainers take part in a job, as one server sees it: decisions only, time is an argument.

A process is identified by its incarnation, a random number that every message carries. An id has one holder at a time.
A process that joins with the id of another one replaces it if that one has left, was evicted or stays silent for longer
than two heartbeats; otherwise it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

TAKEOVER_AFTER = 11.0  # seconds of silence; trainers send a heartbeat every 5
_KEPT = ("incarnation", "host", "left", "evicted", "steps", "progress")  # of a member, across restarts of the server


@dataclass
class Member:
    """One trainer."""

    incarnation: int | None = None  # None until it joins
    host: str = ""
    joined: float | None = None
    seen: float | None = None  # its last message, heartbeats included
    active: float | None = None  # its last exchange
    left: bool = False
    evicted: bool = False  # it did not leave by itself: it may come back
    steps: int = 0  # those that were applied
    max_staleness: int = 0  # how many of its own steps its parameters may lack
    max_lead: int | None = None  # how many steps it may be ahead of the slowest trainer
    unknown_steps: int = 0  # how many it may take before the server hears of them
    progress: int = 0  # steps, as far as the lead of others is concerned
    at_barrier: bool = False  # it waits for others, who must not wait for it
    must_join: bool = False  # the server was restarted, and the trainer has not noticed yet


@dataclass(frozen=True)
class JoinAttempt:
    """A process that asks to be a trainer."""

    trainer: int
    incarnation: int
    host: str
    began: float


class Admission(Enum):
    """What becomes of a join attempt."""

    GRANTED = "granted"
    REFUSED = "refused"  # another process holds the id and is alive
    UNDECIDED = "undecided"  # another process holds the id; its next heartbeat decides


class Membership:
    """All trainers of a job."""

    def __init__(self, trainers: int, started: float) -> None:
        self.trainers, self.started = trainers, started
        self.members = {trainer: Member() for trainer in range(trainers)}
        self.last_left: float | None = None

    def state(self) -> dict[str, Any]:
        """What a restarted server must know, as plain data."""
        return {
            str(trainer): {name: getattr(member, name) for name in _KEPT}
            for trainer, member in self.members.items()
            if member.joined is not None or member.left
        }

    def restore(self, state: Mapping[str, Any], now: float) -> None:
        """The inverse of `state`: trainers have just been seen, and must join again before they train on."""
        for trainer, kept in state.items():
            self.members[int(trainer)] = Member(**kept, joined=now, seen=now, must_join=not kept["left"])

    def decide(self, attempt: JoinAttempt, now: float) -> Admission:
        """Whether a process may join, as far as is known at time ``now``."""
        holder = self.members[attempt.trainer]
        if holder.incarnation is None or holder.incarnation == attempt.incarnation or holder.left:
            return Admission.GRANTED
        assert holder.seen is not None
        if holder.seen > attempt.began:
            return Admission.REFUSED
        return Admission.GRANTED if now - holder.seen >= TAKEOVER_AFTER else Admission.UNDECIDED

    def join(self, attempt: JoinAttempt, now: float) -> Member | None:
        """Makes a process the holder of its id; returns the member it replaces, if it is a new process."""
        member = self.members[attempt.trainer]
        if member.incarnation == attempt.incarnation:
            member.seen, member.left, member.evicted, member.must_join = now, False, False, False
            return None
        new = Member(attempt.incarnation, attempt.host, now, now, steps=member.steps, progress=member.progress)
        self.members[attempt.trainer] = new
        if member.incarnation is not None:
            self._catch_up(attempt.trainer)
        return member

    def _catch_up(self, trainer: int) -> None:
        """One that comes back counts as far as the slowest of the others: nobody waits for what it has missed."""
        others = [m.progress for each, m in self.members.items() if each != trainer and not m.left]
        self.members[trainer].progress = max([self.members[trainer].progress, *([min(others)] if others else [])])

    def refusal(self, attempt: JoinAttempt, now: float) -> str:
        """Why a join attempt is refused, with both processes and what to do."""
        holder = self.members[attempt.trainer]
        return (
            f"trainer {attempt.trainer} is already running as {holder.host or 'an unnamed process'} "
            f"({_ago(holder.seen, now)}), and {attempt.host or 'another process'} tried to join with the same id; "
            "give each trainer its own id (PADDLE_TRAINER_ID), or stop the other process first"
        )

    def see(self, trainer: int, incarnation: int, now: float) -> Member:
        """Records a message of a trainer and returns it; one that was evicted takes part again.

        Raises:
            ValueError: the message is from a process that does not hold the id, or the id is out of range.
        """
        member = self.members.get(trainer)
        if member is None:
            raise ValueError(f"there is no trainer {trainer} in a job of {self.trainers} trainers, numbered from 0")
        if member.incarnation is not None and member.incarnation != incarnation:
            raise ValueError(
                f"this process is no longer trainer {trainer}: {member.host or 'another process'} joined with the same "
                f"id {_ago(member.joined, now, 'just now')} and replaced it; give each trainer its own id "
                "(PADDLE_TRAINER_ID)"
            )
        member.seen = now
        if member.evicted:
            member.left = member.evicted = False
            self._catch_up(trainer)
        return member

    def leave(self, trainer: int, now: float) -> None:
        """Records that a trainer is done."""
        self.members[trainer].left = True
        self.members[trainer].seen = self.last_left = now

    def evict(self, trainer: int) -> None:
        """Stops waiting for a trainer that is silent."""
        self.members[trainer].left = self.members[trainer].evicted = True

    def silent(self, now: float, longer_than: float) -> list[int]:
        """Trainers that have joined, have not left, and sent nothing for a while."""
        return [
            trainer
            for trainer, member in self.members.items()
            if member.seen is not None and not member.left and now - member.seen > longer_than
        ]

    def unseen(self) -> list[int]:
        """Trainers that have never sent a message and were not evicted."""
        return [trainer for trainer, member in self.members.items() if member.seen is None and not member.left]

    def present(self) -> list[int]:
        """Trainers that have joined and not left."""
        return [trainer for trainer, member in self.members.items() if member.joined is not None and not member.left]

    def too_far_behind(self, trainer: int) -> list[int]:
        """The trainers that one with a ``max_lead`` has to wait for, those that have not joined yet included."""
        member = self.members[trainer]
        if member.max_lead is None or member.left:
            return []
        needed = member.progress + member.unknown_steps - member.max_lead
        return [
            each
            for each, other in self.members.items()
            if other.progress < needed and not (other.left or other.at_barrier)
        ]

    def applied(self, trainer: int, steps: int) -> None:
        """Records that steps of a trainer were applied."""
        self.members[trainer].steps += steps
        self.members[trainer].progress += steps

    def idle_since(self) -> float | None:
        """When the last message but heartbeats arrived from a trainer, once one has left and others have not."""
        if self.last_left is None:
            return None
        return max([self.last_left, *(member.active or 0.0 for member in self.members.values())])

    @property
    def all_left(self) -> bool:
        """Whether every trainer has left or was evicted."""
        return all(member.left for member in self.members.values())

    def describe(self, trainer: int, now: float) -> str:
        """A trainer and when it was last seen, for messages."""
        member = self.members[trainer]
        if member.seen is None:
            return f"trainer {trainer} (has not joined in {now - self.started:.0f} s)"
        where = f" on {member.host}" if member.host else ""
        return f"trainer {trainer}{where} (last seen {now - member.seen:.0f} s ago)"


def _ago(when: float | None, now: float, otherwise: str = "never seen") -> str:
    return otherwise if when is None else f"{now - when:.1f} s ago"
