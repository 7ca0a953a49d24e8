"""What the other trainers of a job have sent to this one: notes and records.

No network: the bytes of a request in, the buffers of the reply out. `group` listens on a port, calls and waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import MalformedError, pb

_MOST_GATHERS = 16  # whose notes are kept; the others can be one ahead of this trainer


@dataclass(frozen=True)
class Chunk:
    """Some records in binary form, one after the other."""

    data: np.ndarray  # bytes
    count: int


@dataclass(frozen=True)
class Note:
    """A trainer's word at a gather."""

    what: str
    text: str


class Mailbox:
    """The mailbox of one trainer. Its methods raise a ValueError, meant for the caller, on what cannot be right."""

    def __init__(self, trainer: int, trainers: int):
        self.trainer, self.trainers = trainer, trainers
        self.failures: dict[int, str] = {}  # trainers that have given up, and why
        self.met: set[int] = set()  # trainers that have called
        self._changed = threading.Condition()  # guards everything, and notifies of changes
        self._incarnations: dict[int, int] = {}
        self._notes: dict[int, dict[int, Note]] = {}
        self._shuffle: int | None = None  # the one that takes records now
        self._chunks: dict[tuple[int, int], Chunk] = {}
        self.methods: dict[str, Callable[[bytes], list[Any]]] = {
            "Note": self._note,
            "Records": self._records,
            "Ping": self._ping,
        }

    def wait(self, number: int, seconds: float) -> dict[int, Note] | None:
        """The notes of all other trainers at a gather; None if some are missing after a while, or one has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self.failures or not self._missing(number), seconds)
            return None if self.failures or self._missing(number) else self._notes.pop(number, {})

    def missing(self, number: int) -> list[int]:
        """The trainers that have not arrived at a gather yet."""
        with self._changed:
            return self._missing(number)

    def expect_records(self, shuffle: int) -> None:
        """Takes records of a shuffle from now on."""
        with self._changed:
            self._shuffle, self._chunks = shuffle, {}

    def take_records(self) -> dict[tuple[int, int], Chunk]:
        """Everything that arrived, by trainer and number of the chunk; takes no more."""
        with self._changed:
            found, self._shuffle, self._chunks = self._chunks, None, {}
            return found

    # What other trainers call

    def _note(self, message: bytes) -> list[Any]:
        request = wire.decode(pb.NoteRequest, message)
        with self._changed:
            trainer = self._meet(request.caller)
            if request.failure:
                self.failures[trainer] = request.failure
            elif request.number not in self._notes and len(self._notes) >= _MOST_GATHERS:
                raise ValueError(f"trainer {self.trainer} has not come to gather {request.number}, nor to those before")
            else:
                self._notes.setdefault(request.number, {})[trainer] = Note(request.what, request.text)
            self._changed.notify_all()
        return wire.encode(pb.Empty())

    def _records(self, message: bytes) -> list[Any]:
        request = wire.decode(pb.RecordsRequest, message)
        data = wire.decode_tensors(request, message).get("data")
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
            raise MalformedError("records are one tensor of bytes, named data")
        with self._changed:
            trainer = self._meet(request.caller)
            if request.shuffle != self._shuffle:
                raise ValueError(f"trainer {self.trainer} takes no records: it is not in shuffle {request.shuffle}")
            self._chunks[trainer, request.chunk] = Chunk(data, request.count)  # one that arrives again replaces itself
        return wire.encode(pb.Empty())

    def _ping(self, message: bytes) -> list[Any]:
        with self._changed:
            self._meet(wire.decode(pb.CallerRequest, message).caller)
        return wire.encode(pb.Empty())

    # With the lock held

    def _missing(self, number: int) -> list[int]:
        arrived = self._notes.get(number, {})
        return [trainer for trainer in range(self.trainers) if trainer != self.trainer and trainer not in arrived]

    def _meet(self, caller: Any) -> int:
        trainer = caller.trainer
        if not 0 <= trainer < self.trainers or trainer == self.trainer:
            raise ValueError(
                f"trainer {self.trainer} of {self.trainers} has no other trainer with the number {trainer}"
            )
        if self._incarnations.setdefault(trainer, caller.incarnation) != caller.incarnation:
            raise ValueError(
                f"trainer {trainer} is not the process that trainer {self.trainer} knows: it was restarted"
            )
        self.met.add(trainer)
        return trainer
