"""What is known of the ranks of a job, and what follows from it: who is awaited, who differs, who ends the job.

No sockets, threads or clocks: the hub (`hub`) passes in what it receives, with the time, and sends the replies.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from refluid.runtime.collective.lines import Message

Reply = tuple[int | None, Message]  # to one rank, or to all

SILENCE = 30.0  # seconds; a rank that sends nothing for so long has stopped, or its network has
_REMIND_EVERY = 10.0  # seconds between two messages about who is awaited
_BUSY = 0.02  # the share of a processor from which on a rank is at work


@dataclass(frozen=True)
class Patience:
    """How long ranks wait for one that has not reached the step they are in, in seconds.

    Attributes:
      joining: for all ranks to join.
      idle: for a rank that uses no processor.
      busy: for one that does: it may be compiling, reading or saving.
    """

    joining: float = 180.0
    idle: float = 45.0
    busy: float = 600.0

    @classmethod
    def from_environment(cls, joining: float) -> Patience:
        """As REFLUID_COLLECTIVE_TIMEOUT says, which sets both limits for a step."""
        chosen = os.environ.get("REFLUID_COLLECTIVE_TIMEOUT")
        if chosen is None:
            return cls(joining)
        try:
            seconds = float(chosen)
        except ValueError:
            raise ValueError(f"REFLUID_COLLECTIVE_TIMEOUT={chosen!r}: expected seconds, such as 120") from None
        return cls(joining, seconds, seconds)


@dataclass
class _Seat:
    """What is known of one rank."""

    here: bool = False
    left: bool = False
    parted: bool = False  # it has been told that it may go
    heard: float = 0.0  # when it sent something last
    active: float = 0.0  # when it was last seen working
    processor: float = 0.0  # seconds of processor time it has used
    entered: int = 0  # steps and other meetings that it has begun
    done: int = 0
    at: str = ""  # what it has begun last
    where: str = ""  # the line of the script that it executes
    note: tuple[str, list[str]] | None = None  # what it brings to the meeting it is in


@dataclass
class Roster:
    """The ranks of a job, by number.

    Args:
      endpoints: of all ranks.
      welcome: what everybody is told when all are here.
      patience: how long to wait for whom.
      began: the time.
    """

    endpoints: Sequence[str]
    welcome: Message
    patience: Patience
    began: float
    verdict: Message | None = None  # why the job has failed, which everybody was told
    _complete: bool = False
    _reminded: float = 0.0
    _furthest: tuple[int, float] = (0, 0.0)  # the last meeting that any rank has begun, and when that was seen
    _seats: list[_Seat] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._seats = [_Seat() for _ in self.endpoints]
        self._reminded = self.began

    def has_left(self, rank: Any) -> bool:
        """Whether a rank has left this job."""
        return isinstance(rank, int) and 0 <= rank < len(self._seats) and self._seats[rank].left

    def refusal(self, rank: Any, endpoints: Any) -> str | None:
        """Why a process that wants to be a rank cannot be, or None."""
        if not isinstance(rank, int) or not 0 <= rank < len(self._seats):
            return f"does not exist: there are {len(self._seats)} ranks, from 0 on"
        if self._seats[rank].here:
            return "has joined already: two processes have the same rank (PADDLE_TRAINER_ID)"
        if list(endpoints) != list(self.endpoints):
            return f"has the endpoints {','.join(map(str, endpoints))}, rank 0 has {','.join(self.endpoints)}"
        return None

    def refuse(self, end: Message) -> list[Reply]:
        """A process was refused: a job that is not complete yet cannot become so."""
        if self._complete or self.verdict is not None:
            return []
        self.verdict = end
        return [(None, {"end": end})]

    def join(self, rank: int, now: float) -> list[Reply]:
        """A rank is here."""
        seat = self._seats[rank]
        seat.here, seat.heard, seat.active = True, now, now
        if not all(seat.here for seat in self._seats):
            return []
        self._complete = True
        return [(None, {"welcome": self.welcome})]

    def beat(self, rank: int, beat: Message, now: float) -> list[Reply]:
        """A rank says how far it is; `tick` judges."""
        seat = self._seats[rank]
        moved = (seat.entered, seat.done) != (beat["entered"], beat["done"])
        if moved or beat["processor"] - seat.processor > _BUSY * (now - seat.heard):
            seat.active = now
        seat.heard, seat.processor = now, beat["processor"]
        seat.entered, seat.done, seat.at, seat.where = beat["entered"], beat["done"], beat["at"], beat["where"]
        if seat.entered > self._furthest[0]:
            self._furthest = seat.entered, now
        return self._parting() + self._someone_left()

    def note(self, rank: int, what: str, lines: list[str], now: float) -> list[Reply]:
        """A rank brings something that must be the same on all ranks; replies when everybody has."""
        self._seats[rank].note, self._seats[rank].heard = (what, lines), now
        if any(seat.note is None for seat in self._seats):
            return []
        notes = [seat.note for seat in self._seats if seat.note is not None]
        for seat in self._seats:
            seat.note = None
        for other, brought in enumerate(notes[1:], 1):
            problem = difference(notes[0], brought)
            if problem is not None:
                return self._end(other, problem)
        return [(None, {"agreed": what})]

    def leave(self, rank: int, now: float) -> list[Reply]:
        """A rank has finished; it may go when nobody needs it for a step that it has done itself."""
        seat = self._seats[rank]
        seat.left, seat.heard = True, now
        return [*self._parting(), *self._someone_left()]

    def fail(self, rank: int, reason: str) -> list[Reply]:
        """A rank says that it fails."""
        return self._end(rank, f"has failed: {reason}")

    def lose(self, rank: int) -> list[Reply]:
        """The connection to a rank is closed."""
        seat = self._seats[rank]
        if seat.left:
            return []
        return self._end(rank, "has ended without leaving: it crashed or was killed; see its log")

    def tick(self, now: float) -> list[Reply]:
        """Time has passed."""
        if self.verdict is not None:
            return []
        if not self._complete:
            return self._await_all(now)
        for rank, seat in enumerate(self._seats):
            if not seat.left and now - seat.heard > SILENCE:
                return self._end(rank, f"has been silent for {now - seat.heard:.0f} s: it or its network has stopped")
        return self._someone_left() or self._judge(now)

    def _await_all(self, now: float) -> list[Reply]:
        missing = [rank for rank, seat in enumerate(self._seats) if not seat.here]
        if now - self.began > self.patience.joining:
            return self._end(missing[0], f"has not joined within {self.patience.joining:.0f} s{_reached(self)}")
        if now - self._reminded < _REMIND_EVERY:
            return []
        self._reminded = now
        awaited = ", ".join(f"{rank} at {self.endpoints[rank]}" for rank in missing)
        return [(None, {"awaited": awaited, "seconds": round(now - self.began)})]

    def _judge(self, now: float) -> list[Reply]:
        """Ends the job if others wait too long for a rank."""
        meeting, since = self._furthest
        name = next((seat.at for seat in self._seats if seat.entered == meeting), "")
        for rank, seat in enumerate(self._seats):
            if seat.entered >= meeting or seat.left:
                continue
            waited, idle = now - since, now - max(since, seat.active)
            state = "does nothing" if idle > self.patience.idle else "is busy"
            if idle > self.patience.idle or waited > self.patience.busy:
                return self._end(rank, f"has not reached {name} for {waited:.0f} s; it {state}{_at(seat)}")
        if all(seat.entered == meeting for seat in self._seats) and now - since > self.patience.busy:
            slow = next((rank for rank, seat in enumerate(self._seats) if seat.done < meeting), None)
            if slow is not None:
                return self._end(slow, f"has not finished {name} for {now - since:.0f} s{_at(self._seats[slow])}")
        return self._remind(now, name)

    def _remind(self, now: float, name: str) -> list[Reply]:
        meeting, since = self._furthest
        behind = [rank for rank, seat in enumerate(self._seats) if seat.entered < meeting and not seat.left]
        if not behind or now - max(since, self._reminded) < _REMIND_EVERY:
            return []
        self._reminded = now
        awaited = ", ".join(f"{rank}{_at(self._seats[rank])}" for rank in behind)
        return [(None, {"awaited": awaited, "seconds": round(now - since), "at": name})]

    def _someone_left(self) -> list[Reply]:
        for rank, seat in enumerate(self._seats):
            if seat.left and self._furthest[0] > seat.done:
                name = next((other.at for other in self._seats if other.entered == self._furthest[0]), "a step")
                problem = f"has ended before {name}, which others are in: all ranks must run the same number of steps"
                return self._end(rank, problem)
        return []

    def _parting(self) -> list[Reply]:
        """Those that may go, once each."""
        behind = min((seat.done for seat in self._seats if not seat.left), default=None)
        free = [
            rank
            for rank, seat in enumerate(self._seats)
            if seat.left and not seat.parted and (behind is None or behind >= seat.done)
        ]
        for rank in free:
            self._seats[rank].parted = True
        return [(rank, {"parted": True}) for rank in free]

    def _end(self, rank: int, problem: str) -> list[Reply]:
        if self.verdict is not None:
            return []
        self.verdict = {"rank": rank, "endpoint": self.endpoints[rank], "problem": problem}
        return [(None, {"end": self.verdict})]


def difference(first: tuple[str, list[str]], second: tuple[str, list[str]]) -> str | None:
    """In what the second note differs from the first, which rank 0 brings."""
    if first[0] != second[0]:
        return f"is at {second[0]}, rank 0 at {first[0]}: all ranks must do the same"
    for ours, theirs in zip(first[1], second[1], strict=False):
        if ours != theirs:
            return f"brings another {first[0]}\n  there       {theirs}\n  on rank 0   {ours}"
    if len(first[1]) != len(second[1]):
        longer = max(first[1], second[1], key=len)[min(len(first[1]), len(second[1]))]
        who = "rank 0" if len(first[1]) > len(second[1]) else "it"
        return f"brings another {first[0]}: only {who} has\n  {longer}"
    return None


def _at(seat: _Seat) -> str:
    return f", at {seat.where}" if seat.where else ""


def _reached(roster: Roster) -> str:
    return f": it was not started, or cannot reach rank 0 at {roster.endpoints[0]}"
