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

_REMIND_EVERY = 10.0  # seconds between two messages about who is awaited
# Ticks and heartbeats come twice a second. After so many seconds without, this process was suspended, and probably the
# whole job with it; or a rank is silent, so that nobody knows whether it works.
_PAUSE = 5.0
_TIMEOUT = "REFLUID_COLLECTIVE_TIMEOUT"


@dataclass(frozen=True)
class Patience:
    """How long ranks wait for one that has not reached the step they are in, in seconds.

    Attributes:
      joining: for all ranks to join.
      idle: for a rank that shows no sign of work.
      busy: for one that does: it may be compiling, evaluating or saving.
      silence: for a rank that sends nothing, whether it is waited for or not.
    """

    joining: float = 180.0
    idle: float = 40.0
    busy: float = 600.0
    silence: float = 40.0

    @classmethod
    def from_environment(cls, joining: float) -> Patience:
        """As REFLUID_COLLECTIVE_TIMEOUT says: how long to wait without signs of work; with them, at least as usual."""
        chosen = os.environ.get(_TIMEOUT)
        if chosen is None:
            return cls(joining)
        try:
            seconds = float(chosen)
        except ValueError:
            raise ValueError(f"{_TIMEOUT}={chosen!r}: expected seconds, such as 120") from None
        return cls(joining, seconds, max(cls.busy, seconds), max(cls.silence, seconds))


@dataclass
class _Seat:
    """What is known of one rank."""

    here: bool = False
    left: bool = False
    parted: bool = False  # it has been told that it may go
    heard: float = 0.0  # when it sent something last
    active: float = 0.0  # when it last showed a sign of work
    computed: float = 0.0  # when it last used the processor, whatever for
    entered: int = 0  # steps and other meetings that it has begun
    done: int = 0
    at: str = ""  # what it has begun last
    where: str = ""  # the line of the script that it executes
    in_script: bool = False  # whether it executes the script itself, rather than a call of refluid
    note: tuple[str, list[str]] | None = None  # what it brings to the meeting it is in
    sizes: tuple[str, list[int]] | None = None  # of the values it brings


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
    _ticked: float = 0.0
    _furthest: tuple[int, float] = (0, 0.0)  # the last meeting that any rank has begun, and when that was seen
    _seats: list[_Seat] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._seats = [_Seat() for _ in self.endpoints]
        self._reminded = self._ticked = self.began

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
        if moved or beat["works"]:
            seat.active = now
        if beat["computes"]:
            seat.computed = now
        seat.heard, seat.entered, seat.done, seat.at = now, beat["entered"], beat["done"], beat["at"]
        seat.where, seat.in_script = beat["where"], beat["in_script"]
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

    def size(self, rank: int, what: str, sizes: list[int], now: float) -> list[Reply]:
        """A rank says how large its values are; replies with the largest of each when everybody has."""
        seat = self._seats[rank]
        seat.sizes, seat.heard = (what, sizes), now
        given = [seat.sizes for seat in self._seats if seat.sizes is not None]
        if len(given) < len(self._seats):
            return []
        for seat in self._seats:
            seat.sizes = None
        for other, (theirs, _) in enumerate(given):
            if theirs != given[0][0]:
                return self._end(other, f"feeds {theirs}, rank 0 {given[0][0]}: all ranks must feed the same variables")
        return [(None, {"largest": [max(each) for each in zip(*(sizes for _, sizes in given), strict=True)]})]

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
        self._forget_pause(now)
        if self.verdict is not None:
            return []
        for rank, seat in enumerate(self._seats):
            if seat.here and not seat.left and now - seat.heard > self.patience.silence:
                return self._end(rank, silent_for(now - seat.heard))
        if not self._complete:
            return self._await_all(now)
        return self._someone_left() or self._judge(now)

    def _forget_pause(self, now: float) -> None:
        """Does not count the time that this process was suspended: what others have sent since is not read yet."""
        pause, self._ticked = now - self._ticked, now
        if pause < _PAUSE:
            return
        for seat in self._seats:
            seat.heard, seat.active, seat.computed = (
                min(then + pause, now) for then in (seat.heard, seat.active, seat.computed)
            )
        meeting, since = self._furthest
        self.began, self._furthest = self.began + pause, (meeting, min(since + pause, now))

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
        waited = now - since
        for rank, seat in self._awaited():
            problem = f"has not {'reached' if seat.entered < meeting else 'finished'} {name} for {waited:.0f} s"
            if now - max(since, seat.active) > self.patience.idle and now - seat.heard < _PAUSE:
                hint = f"if it does not hang but computes, let others wait longer by {_TIMEOUT}=<seconds>"
                return self._end(rank, f"{problem}, without a sign of work{_at(seat)}; {hint}")
            if waited > self.patience.busy:
                return self._end(rank, f"{problem}; it works{_at(seat)}")
        inside = [(rank, seat) for rank, seat in enumerate(self._seats) if seat.done < meeting]
        if inside and all(seat.entered == meeting for seat in self._seats):
            rank, seat = inside[0]
            problem = f"has not finished {name} for {waited:.0f} s{_at(seat)}"
            if now - max(since, *(seat.computed for seat in self._seats)) > self.patience.idle:
                return self._end(rank, f"{problem}, and no rank computes: the network between them may be cut")
            if waited > self.patience.busy:
                return self._end(rank, problem)
        return self._remind(now, name)

    def _awaited(self) -> list[tuple[int, _Seat]]:
        """The ranks that others wait for: those behind, and those that execute the script (py_func) in the meeting."""
        meeting = self._furthest[0]
        return [
            (rank, seat)
            for rank, seat in enumerate(self._seats)
            if not seat.left and (seat.entered < meeting or (seat.done < meeting and seat.in_script))
        ]

    def _remind(self, now: float, name: str) -> list[Reply]:
        since = self._furthest[1]
        behind = self._awaited()
        if not behind or now - max(since, self._reminded) < _REMIND_EVERY:
            return []
        self._reminded = now
        awaited = ", ".join(f"{rank}{_at(seat)}" for rank, seat in behind)
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


def silent_for(seconds: float) -> str:
    """What is wrong with a rank that sends nothing."""
    return f"has been silent for {seconds:.0f} s: it or its network has stopped"


def _at(seat: _Seat) -> str:
    return f", at {seat.where}" if seat.where else ""


def _reached(roster: Roster) -> str:
    return f": it was not started, or cannot reach rank 0 at {roster.endpoints[0]}"
