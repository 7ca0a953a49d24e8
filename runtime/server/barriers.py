"""Trainers that wait for each other: decisions only. The server does the waiting."""

from __future__ import annotations


class Meetings:
    """Counts who has come to which meeting; a trainer's meetings are numbered from 1."""

    def __init__(self, trainers: int) -> None:
        self._came = dict.fromkeys(range(trainers), 0)

    def come(self, trainer: int, number: int) -> None:
        """A trainer has come to its meeting of this number; coming again changes nothing."""
        if trainer in self._came:
            self._came[trainer] = max(self._came[trainer], number)

    def leave(self, trainer: int) -> None:
        """A trainer is done with the job; nobody waits for it any more."""
        self._came.pop(trainer, None)

    def missing(self, number: int) -> list[int]:
        """Who is still awaited."""
        return [trainer for trainer, came in self._came.items() if came < number]
