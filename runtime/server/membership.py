"""Who takes part in a job, as a server sees it: decisions only, time arrives from outside."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Member:
    """One trainer."""

    incarnation: int = 0
    joined: float | None = None
    seen: float | None = None
    left: bool = False
    given_up: bool = False  # it did not say goodbye: it may come back
    steps: int = 0


@dataclass
class Roster:
    """All trainers of a job."""

    trainers: int
    started: float
    members: dict[int, Member] = field(default_factory=dict)

    def __post_init__(self):
        self.members = {trainer: Member() for trainer in range(self.trainers)}

    def join(self, trainer: int, incarnation: int, now: float) -> bool:
        """A trainer says hello; True if it is a new process."""
        member = self.members[trainer]
        new = member.incarnation != incarnation
        member.incarnation, member.joined, member.seen = incarnation, now, now
        member.left = member.given_up = False
        return new

    def see(self, trainer: int, now: float) -> None:
        """A trainer has called; one that was given up is there again."""
        member = self.members[trainer]
        member.seen = now
        if member.given_up:
            member.left = member.given_up = False

    def leave(self, trainer: int, now: float) -> None:
        """A trainer is done."""
        self.members[trainer].left = True
        self.members[trainer].seen = now

    def give_up(self, trainer: int) -> None:
        """A trainer is not waited for any longer."""
        self.members[trainer].left = self.members[trainer].given_up = True

    def has_come(self, trainer: int) -> bool:
        """Whether a trainer has ever called."""
        return self.members[trainer].seen is not None

    def silent(self, now: float, longer_than: float) -> list[int]:
        """Trainers that joined, have not left, and were not heard of for a while."""
        return [
            trainer
            for trainer, member in self.members.items()
            if member.seen is not None and not member.left and now - member.seen > longer_than
        ]

    @property
    def all_left(self) -> bool:
        """Whether every trainer has come and gone."""
        return all(member.left for member in self.members.values())

    def describe(self, trainer: int, now: float) -> str:
        """What is known of a trainer, for people."""
        member = self.members[trainer]
        if member.seen is None:
            return f"trainer {trainer} (has not joined in {now - self.started:.0f} s)"
        return f"trainer {trainer} (last seen {now - member.seen:.0f} s ago)"
