"""Barriers between trainers: decisions only. The server does the waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Barriers:
    """Counts which trainers have arrived at which barrier; barriers are numbered from 1."""

    def __init__(self, trainers: int) -> None:
        self._arrived = dict.fromkeys(range(trainers), 0)
        self._left: dict[int, int] = {}  # trainers that are not waited for -> where they were last
        self._passed = 0  # the last barrier that everybody has reached
        self._first: dict[int, float] = {}  # barrier that is not passed yet -> when the first trainer arrived
        self._texts: dict[int, dict[int, str]] = {}  # barrier -> what each trainer brought
        self._brought: dict[int, list[int]] = {}  # trainer -> the last barriers that it brought something to
        self.arrivals = 0  # how often a trainer arrived somewhere first

    def state(self) -> dict[str, Any]:
        """What a restarted server must know, as plain data."""
        return {"arrived": _texts(self._arrived), "left": _texts(self._left), "passed": self._passed}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`; those who wait will ask again."""
        self._arrived, self._left = _numbers(state["arrived"]), _numbers(state["left"])
        self._passed = state["passed"]

    def passed(self, trainer: int, number: int) -> None:
        """A trainer that joins says how many barriers it has passed: a restarted server may not know."""
        if trainer in self._arrived:
            self._arrived[trainer] = max(self._arrived[trainer], number)
            self._drop_passed()

    def enter(self, trainer: int) -> int:
        """Waits for a trainer from now on: a new one, or one that had left; returns how many barriers it has missed."""
        before = self._left.pop(trainer, 0) if trainer not in self._arrived else self._arrived[trainer]
        self._arrived[trainer] = max(before, self._passed)
        return self._arrived[trainer] - before

    def reached(self, trainer: int) -> int:
        """The last barrier that a trainer has arrived at."""
        return self._arrived.get(trainer, 0)

    def retract(self, trainer: int, number: int) -> None:
        """Takes back that a trainer has arrived at a barrier that is not passed yet."""
        if self._arrived.get(trainer) == number and self.missing(number):
            self._arrived[trainer] = number - 1
            if not self.at(number):
                self._first.pop(number, None)

    def at(self, number: int) -> list[int]:
        """The trainers that have arrived at a barrier."""
        return [trainer for trainer, arrived in list(self._arrived.items()) if arrived >= number]

    def arrive(self, trainer: int, number: int, now: float, text: str = "") -> None:
        """Records that a trainer has arrived at a barrier with a text; arriving again changes nothing."""
        if trainer in self._arrived:
            self.arrivals += number > self._arrived[trainer]
            self._arrived[trainer] = max(self._arrived[trainer], number)
            self._texts.setdefault(number, {})[trainer] = text
            self._first.setdefault(number, now)
            self._forget_others(trainer, number)
        self._drop_passed()

    def leave(self, trainer: int) -> None:
        """Stops waiting for a trainer that is done with the job."""
        if trainer in self._arrived:
            self._left[trainer] = self._arrived.pop(trainer)
        self._drop_passed()

    def missing(self, number: int) -> list[int]:
        """The trainers that have not arrived at a barrier yet."""
        return [trainer for trainer, arrived in list(self._arrived.items()) if arrived < number]

    def texts(self, number: int) -> dict[int, str]:
        """What each trainer that has been at a barrier brought there."""
        return self._texts.get(number, {})

    def since(self, number: int) -> float | None:
        """When the first trainer arrived at a barrier that is not passed yet."""
        return self._first.get(number)

    def open(self) -> tuple[int, float] | None:
        """The oldest barrier at which trainers wait, and since when, if there is one."""
        return min(list(self._first.items()), default=None)

    def _forget_others(self, trainer: int, number: int) -> None:
        """A trainer is at one barrier at a time; its text is needed there, and at the one before for replies again.

        One that goes wrong may be at any number of them.
        """
        brought = [each for each in self._brought.get(trainer, ()) if each != number]
        self._brought[trainer] = [*brought[-1:], number]
        for each in brought[:-1]:
            texts = self._texts.get(each, {})
            texts.pop(trainer, None)
            if not texts:
                self._texts.pop(each, None)
                self._first.pop(each, None)

    def _drop_passed(self) -> None:
        for number in [number for number in self._first if not self.missing(number)]:
            del self._first[number]
        # The last reply may be requested again until its trainer is at a later barrier.
        oldest = min(self._arrived.values(), default=0)
        self._passed = max(self._passed, oldest)
        for number in [number for number in self._texts if number < oldest]:
            del self._texts[number]


def _texts(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(trainer): number for trainer, number in numbers.items()}


def _numbers(texts: Mapping[str, int]) -> dict[int, int]:
    return {int(trainer): number for trainer, number in texts.items()}
