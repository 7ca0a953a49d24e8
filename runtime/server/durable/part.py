"""What one server does for a common snapshot: it fixes its state, writes files while it serves, and completes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from refluid.runtime.server.durable.cuts import CutError, Tail
from refluid.runtime.server.durable.records import is_within
from refluid.runtime.server.durable.snapshots import Name, Snapshots, Written
from refluid.runtime.server.held_tables import HeldTable
from refluid.runtime.transport.wire import pb

_PATIENCE = 60.0  # seconds to hear where the snapshot ends, and for the pushes until there
_SOON = 0.05  # seconds in which small files are complete


class Saved(Protocol):
    """A server, as far as it is saved; its lock is held, but during `settle`."""

    @property
    def tables(self) -> Mapping[str, HeldTable]: ...
    @property
    def round(self) -> int: ...
    def applied(self) -> dict[int, int]: ...
    def lacking(self, until: Mapping[int, int]) -> dict[int, int]: ...
    def state(self) -> dict[str, Any]: ...
    def settle(self) -> None: ...


class Part:
    """One server's part of a snapshot. Made with the lock of updates held, which fixes the state; `start` writes it.

    Args:
      described: what the manifest says of the server.
      written: called when tables are in files, or will not be: others may save them then.
      ended: called when the files are complete or, with a reason, will not be.
    """

    def __init__(
        self,
        name: Name,
        server: Saved,
        snapshots: Snapshots,
        lock: threading.Condition,
        described: Mapping[str, Any],
        written: Callable[[], object],
        ended: Callable[[Part, Exception | None], None],
    ):
        self.name, self.applied, self.round = name, server.applied(), server.round
        self.size, self.problem = 0, ""
        self._server, self._snapshots, self._lock = server, snapshots, lock
        self._described = {**described, "round": server.round, "time": time.time()}
        self._written, self._ended = written, ended
        self.first_record: int | None = described["first_record"]
        self._began = time.monotonic()
        self._tail, self._until = Tail(), {}
        self._reason = ""  # why there will be no such snapshot
        self._complete = False  # it has all pushes that belong to the snapshot
        self._told, self._done = threading.Event(), threading.Event()  # where it ends; the files are complete
        self._tree = server.state()
        self._begun = snapshots.begin(name, server.tables)
        self._thread = threading.Thread(target=self._run, name=f"snapshot {name.number}")

    @property
    def seconds(self) -> float:
        """Since it was begun."""
        return time.monotonic() - self._began

    def start(self) -> None:
        """Begins to write; without the lock."""
        self._thread.start()

    def end(self, until: dict[int, int]) -> Any:
        """Says where the snapshot ends; the reply to that. Raises a CutError if it has failed."""
        with self._lock:
            self._until = until
            self._told.set()
            self.ends()
        if not self._done.wait(_SOON):
            return pb.CutReply(pending=True, text=self._describe())
        if self.problem:
            raise CutError(self.problem)
        return pb.CutReply()

    @property
    def is_recording(self) -> bool:
        """Whether it wants to hear of what the server does."""
        return self._tail.is_open

    def record(self, buffers: Sequence[Any]) -> None:
        """Hears of what the server has done."""
        self._tail.add(buffers)

    def ends(self) -> bool:
        """Whether the server has all pushes that belong to the snapshot; then nothing is added. With the lock held."""
        if not self._complete and self._told.is_set() and not self._server.lacking(self._until):
            self._tail.end()
            self._complete = True
            self._lock.notify_all()
        return self._complete

    def abandon(self, reason: str) -> None:
        """Gives it up, unless its files are complete; returns when nothing is written any more."""
        with self._lock:
            self._reason = reason
            self._lock.notify_all()
        self._told.set()
        self._thread.join()

    def _describe(self) -> str:
        lacking = self._server.lacking(self._until)
        if not lacking:
            return "its files are not complete yet"
        return "it waits for " + ", ".join(f"push {last} of trainer {trainer}" for trainer, last in lacking.items())

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            written = self._write()
            records = self._wait()
            described = {**self._described, "until": {str(trainer): last for trainer, last in self._until.items()}}
            self.size = self._snapshots.complete(written, records, described)
        except Exception as error:  # noqa: BLE001 - told to who asked for it
            failure, self.problem = error, str(error)
        finally:
            with self._lock:
                self._tail.end()
            try:
                self._ended(self, failure)
            finally:
                self._done.set()

    def _write(self) -> Written:
        """Writes the state. Tables are free then, however long pushes are awaited: a trainer that saves may be why."""
        try:
            self._server.settle()
            return self._snapshots.write(self.name, self._tree, self._begun)
        finally:
            self._tree = {}
            for _, part in self._begun:
                part.close()
            self._written()

    def _wait(self) -> list[bytes]:
        """What the server did until it had all pushes that belong to the snapshot."""
        if not self._told.wait(_PATIENCE):
            raise CutError("the first server did not say where the snapshot ends")
        with self._lock:
            self._lock.wait_for(lambda: bool(self._reason) or self.ends(), _PATIENCE)
            if self._reason or not self._complete:
                raise CutError(self._reason or self._describe())
            if self._tail.is_too_long:
                raise CutError("too much was pushed until all servers had begun it")
            records = self._tail.take()
        return [record for record in records if is_within(record, self._until)]
