"""Barriers between trainers: decisions only. The server does the waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Barriers:
    """Counts which trainers have arrived at which barrier; every trainer numbers its barriers from 1."""

    def __init__(self, trainers: int) -> None:
        self._arrived = dict.fromkeys(range(trainers), 0)
        self._first: dict[int, float] = {}  # barrier that is not passed yet -> when the first trainer arrived
        self._texts: dict[int, dict[int, str]] = {}  # barrier -> what each trainer brought

    def state(self) -> dict[str, Any]:
        """What a restarted server must know, as plain data."""
        return {str(trainer): arrived for trainer, arrived in self._arrived.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`; those who wait will ask again."""
        self._arrived = {int(trainer): arrived for trainer, arrived in state.items()}

    def passed(self, trainer: int, number: int) -> None:
        """A trainer that joins says how many barriers it has passed: a restarted server may not know."""
        if trainer in self._arrived:
            self._arrived[trainer] = max(self._arrived[trainer], number)

    def arrive(self, trainer: int, number: int, now: float, text: str = "") -> None:
        """Records that a trainer has arrived at a barrier with a text; arriving again changes nothing."""
        if trainer in self._arrived:
            self._arrived[trainer] = max(self._arrived[trainer], number)
            self._texts.setdefault(number, {})[trainer] = text
        self._first.setdefault(number, now)
        self._drop_passed()

    def leave(self, trainer: int) -> None:
        """Stops waiting for a trainer that is done with the job."""
        self._arrived.pop(trainer, None)
        self._drop_passed()

    def missing(self, number: int) -> list[int]:
        """The trainers that have not arrived at a barrier yet."""
        return [trainer for trainer, arrived in self._arrived.items() if arrived < number]

    def texts(self, number: int) -> dict[int, str]:
        """What each trainer that has been at a barrier brought there."""
        return self._texts.get(number, {})

    def since(self, number: int) -> float | None:
        """When the first trainer arrived at a barrier that is not passed yet."""
        return self._first.get(number)

    def open(self) -> tuple[int, float] | None:
        """The oldest barrier at which trainers wait, and since when, if there is one."""
        return min(self._first.items(), default=None)

    def _drop_passed(self) -> None:
        for number in [number for number in self._first if not self.missing(number)]:
            del self._first[number]
        # The last reply may be requested again until its trainer is at a later barrier.
        oldest = min(self._arrived.values(), default=0)
        for number in [number for number in self._texts if number < oldest]:
            del self._texts[number]
