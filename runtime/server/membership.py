"""Which trainers take part in a job, as one server sees it: decisions only, time is an argument.

A process is identified by its incarnation, a random number that every message carries. An id has one holder at a time.
A process that joins with the id of another one replaces it if that one has left, has failed, was evicted or stays
silent for longer than two heartbeats; otherwise it is refused. It goes on counting where the other one was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from refluid.runtime.observe.waits import Wait

TAKEOVER_AFTER = 2.2  # heartbeats of silence; in the second half of this time comes one of whoever lives
_KEPT = (  # of a member, across restarts of the server
    "incarnation", "host", "left", "evicted", "steps", "progress", "earlier_barriers", "replaces", "has_pushed",
)  # fmt: skip


@dataclass
class Member:
    """One trainer."""

    incarnation: int | None = None  # None until it joins
    host: str = ""
    joined: float | None = None
    seen: float | None = None  # its last message, heartbeats included
    active: float | None = None  # its last exchange
    pushed: float | None = None  # its last push
    left: bool = False
    evicted: bool = False  # it did not leave by itself: it may come back
    steps: int = 0  # those that were applied
    max_staleness: int = 0  # how many of its own steps its parameters may lack
    max_lead: int | None = None  # how many steps it may be ahead of the slowest trainer
    unknown_steps: int = 0  # how many it may take before the server hears of them
    progress: int = 0  # steps, as far as the lead of others is concerned
    at_barrier: bool = False  # it waits for others, who must not wait for it
    must_join: bool = False  # the server was restarted, and the trainer has not noticed yet
    replaces: bool = False  # it goes on for a process that was lost
    has_pushed: bool = False  # this process, and not one that it replaces
    earlier_barriers: int = 0  # that count as passed, and that this process has not been at
    lost: str = ""  # why it is waited for until it joins again
    lost_since: float = 0.0
    has_failed: bool = False  # it has said that it ends: nobody need wait for its silence
    doing: str = ""  # the line of its script, as of its last heartbeat
    waits: list[Wait] = field(default_factory=list)  # for servers, as of its last heartbeat
    reported: float = 0.0  # when that was

    @property
    def goes_on(self) -> bool:
        """Whether it replaces another process and has yet to show where in its script it goes on."""
        return self.replaces and not self.has_pushed


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

    def __init__(self, trainers: int, started: float, heartbeat: float = 5.0) -> None:
        self.trainers, self.started = trainers, started
        self.members = {trainer: Member() for trainer in range(trainers)}
        self.last_left: float | None = None
        self.returned: list[int] = []  # were lost or evicted and have turned up again; the server takes note
        self._takeover_after = TAKEOVER_AFTER * heartbeat

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
            self.members[int(trainer)] = Member(**kept, joined=now, seen=now, must_join=True)

    def decide(self, attempt: JoinAttempt, now: float) -> Admission:
        """Whether a process may join, as far as is known at time ``now``."""
        holder = self.members.get(attempt.trainer, Member())
        free = holder.incarnation is None or holder.left or holder.has_failed
        if free or holder.incarnation == attempt.incarnation:
            return Admission.GRANTED
        assert holder.seen is not None and holder.joined is not None
        # It may have died while its own join waited, or just before this one: its last messages may still be under way.
        if holder.seen > max(attempt.began, holder.joined) + self._takeover_after / 2:
            return Admission.REFUSED
        return Admission.GRANTED if now - holder.seen >= self._takeover_after else Admission.UNDECIDED

    def join(self, attempt: JoinAttempt, now: float) -> Member | None:
        """Makes a process the holder of its id; returns the member it replaces, if it is a new process."""
        member = self.members.get(attempt.trainer, Member())
        if member.incarnation == attempt.incarnation:
            self._return(attempt.trainer, member)
            member.seen, member.left, member.must_join = now, False, False
            return None
        new = Member(attempt.incarnation, attempt.host, now, now, steps=member.steps, progress=member.progress)
        new.replaces = member.incarnation is not None and not (member.left and not member.evicted)
        self.members = {**self.members, attempt.trainer: new}  # others may be looking at them just now
        if member.incarnation is not None or self.is_added(attempt.trainer):
            self._catch_up(attempt.trainer)
        return member

    def replaces(self, attempt: JoinAttempt) -> bool:
        """Whether a process goes on for another one, or is added: it is more than the first of its id."""
        member = self.members.get(attempt.trainer)
        return member is None or member.incarnation not in (None, attempt.incarnation)

    def is_added(self, trainer: int) -> bool:
        """Whether a trainer is none of those that the job began with."""
        return trainer >= self.trainers

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
            count = len(self.members)
            raise ValueError(f"there is no trainer {trainer} in a job of {count} trainers, numbered from 0")
        if member.incarnation is not None and member.incarnation != incarnation:
            raise ValueError(
                f"this process is no longer trainer {trainer}: {member.host or 'another process'} joined with the same "
                f"id {_ago(member.joined, now, 'just now')} and replaced it; give each trainer its own id "
                "(PADDLE_TRAINER_ID)"
            )
        member.seen = now
        self._return(trainer, member)
        return member

    def _return(self, trainer: int, member: Member) -> None:
        """A process that was lost shows a sign of life."""
        if member.evicted:
            self._catch_up(trainer)
        if (member.evicted or member.lost) and not member.has_failed:
            member.left, member.evicted, member.lost = member.left and not member.evicted, False, ""
            self.returned.append(trainer)

    def leave(self, trainer: int, now: float) -> None:
        """Records that a trainer is done."""
        self.members[trainer].left = True
        self.members[trainer].seen = self.last_left = now

    def evict(self, trainer: int) -> None:
        """Stops waiting for a trainer that is lost."""
        self.members[trainer].left = self.members[trainer].evicted = True
        self.members[trainer].lost = ""

    def lose(self, trainer: int, why: str, now: float) -> None:
        """Waits for a trainer that is lost until it turns up or another process takes its place."""
        self.members[trainer].lost, self.members[trainer].lost_since = why, now

    def overdue(self, now: float, longer_than: float) -> list[int]:
        """Trainers that are lost and were waited for long enough."""
        return [each for each, member in self.members.items() if member.lost and now - member.lost_since > longer_than]

    def forgive(self, now: float) -> None:
        """Counts silence anew, because this server itself did not run or listen."""
        for member in self.members.values():
            if member.seen is not None:
                member.seen = now

    def silent(self, now: float, longer_than: float) -> list[int]:
        """Trainers that have joined, have not left, and sent nothing for a while, which is news."""
        return [
            trainer
            for trainer, member in self.members.items()
            if member.seen is not None and not (member.left or member.lost) and now - member.seen > longer_than
        ]

    def never_joined(self, now: float, longer_than: float) -> list[int]:
        """Trainers that have not joined so long after the first one did."""
        joined = [member.joined for member in self.members.values() if member.joined is not None]
        if not joined or now - min(joined) <= longer_than:
            return []
        return [trainer for trainer in self.unseen() if not self.members[trainer].lost]

    def silence(self, trainer: int, now: float) -> float:
        """Seconds since the last message of a trainer."""
        seen = self.members[trainer].seen
        return 0.0 if seen is None else now - seen

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

    def behind(self, trainer: int) -> int:
        """How many steps a trainer is behind the one that is furthest; 0 for one that is done."""
        furthest = max(member.progress for member in self.members.values())
        return 0 if self.members[trainer].left else furthest - self.members[trainer].progress

    def applied(self, trainer: int, steps: int) -> None:
        """Records that steps of a trainer were applied."""
        member = self.members[trainer]
        member.steps += steps
        member.progress += steps
        member.has_pushed = True

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
        lost = f", lost: it {member.lost} and is waited for until it joins again" if member.lost else ""
        if member.seen is None:
            return f"trainer {trainer} (has not joined in {now - self.started:.0f} s{lost})"
        where = f" on {member.host}" if member.host else ""
        at = f", at {member.doing}" if member.doing and not lost else ""
        return f"trainer {trainer}{where} (last seen {now - member.seen:.0f} s ago{lost}{at})"

    def name(self, trainer: int) -> str:
        """A trainer and its process, for messages."""
        host = self.members[trainer].host
        return f"trainer {trainer} ({host})" if host else f"trainer {trainer}"


def _ago(when: float | None, now: float, otherwise: str = "never seen") -> str:
    return otherwise if when is None else f"{now - when:.1f} s ago"
