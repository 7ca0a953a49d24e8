"""A server that can be killed: it writes snapshots while it serves and, on request, logs updates before it replies.

A server that starts and finds files of its predecessor takes over its state. With a log this is its own last snapshot
and the updates since. Without one, it is the last snapshot that all servers of the job have (see `cuts`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from refluid.files.folder_locks import HeldFolder
from refluid.files.writing import make_folder
from refluid.log import Log as Lines
from refluid.runtime.server.durable.cuts import Ask, Coordinator, CutError, check_name
from refluid.runtime.server.durable.log import Log, read_beginning, read_log, remove_log
from refluid.runtime.server.durable.part import Part, Saved
from refluid.runtime.server.durable.records import tree_record, update_record
from refluid.runtime.server.durable.settings import Settings
from refluid.runtime.server.durable.snapshots import Name, SavedSnapshot, SnapshotError, Snapshots
from refluid.runtime.transport.wire import pb

_PATIENCE = 30.0  # seconds that all servers have to write a snapshot, unless they are still writing
_AGAIN = 10.0  # seconds until the next attempt
_BUSY = 5.0  # seconds


class Recoverable(Saved, Protocol):
    """What is kept, as `refluid.runtime.server.server.Server` offers it. All with its lock held."""

    @property
    def has_parameters(self) -> bool: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...
    def replay(self, kind: bytes, content: memoryview) -> None: ...


class Recovery:
    """What one server keeps on disk.

    Args:
      server: whose state it is.
      lock: held during updates.
      writing: held while tables are written to files.
      described: what tells this server from others: endpoint, mode, number of trainers.
      endpoints: all servers of the job; the first one decides when there is a snapshot.
      ask: sends a CutRequest to one of them, and returns its reply.
    """

    def __init__(
        self,
        settings: Settings,
        server: Recoverable,
        lock: threading.Condition,
        writing: threading.Lock,
        described: Mapping[str, Any],
        endpoints: Sequence[str],
        ask: Ask,
        lines: Lines,
    ):
        name = _folder_name(described["endpoint"])
        self._settings, self._server, self._lock, self._writing = settings, server, lock, writing
        self._described, self._endpoints, self._lines = dict(described), list(endpoints), lines
        self._is_first = described["endpoint"] == self._endpoints[0]
        self._ask, self._coordinator = ask, Coordinator(endpoints, ask)
        self._snapshots = Snapshots(settings.snapshots / name)
        self._log_folder = None if settings.log is None else settings.log / name
        self._log: Log | None = None
        self._held: list[HeldFolder] = []
        self._round: int | None = None  # of the last snapshot
        self._written_at: float | None = None  # when the last snapshot was complete
        self._changes = self._saved_changes = 0  # what was recorded, altogether and at the last common snapshot
        self._number = 0  # of the last snapshot
        self._common: Name | None = None  # the last one that all servers had when this one began
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None  # of the first server, while there is a snapshot
        self._snapshot_since: float | None = None  # when the one that is being made was begun
        self._part: Part | None = None  # of the last snapshot that was begun
        self._beginning, self._cutting = threading.Lock(), threading.Lock()
        self._first = threading.Event()  # there is a snapshot, or the first one has failed
        self._next = 0.0  # when the next one is due
        self._failed = ""
        self.replaying = False
        self.restored = False
        self.pause_seconds: Callable[[float], object] = lambda seconds: None  # told how long updates had to wait

    # Beginning

    def begin(self) -> None:
        """Takes over the state of a predecessor, if there was one, and begins to log."""
        local = {folder for folder in (self._snapshots.folder, self._log_folder) if isinstance(folder, Path)}
        try:
            for folder in sorted(local):
                make_folder(folder)
                self._held.append(HeldFolder(folder))
            self._begin()
        except BaseException:
            self._release()
            raise

    def _begin(self) -> None:
        saved, first, follows_end = self._choose()
        last = 0
        if saved is not None:
            self._restore(saved)
            if first is None or follows_end:
                self._replay("replayed the end of the snapshot", enumerate(saved.tail(), 1), 0)
            if self._log_folder is not None and first is not None:
                last = self._replay("replayed the log", read_log(self._log_folder, first), first - 1)
            self._snapshots.keep(saved, *self._common_one(saved))
        self._snapshots.tidy()
        if self._log_folder is not None:
            after = None if first is not None else "" if saved is None else str(saved.name)
            self._log = Log(self._log_folder, last + 1, after=after, syncs=self._settings.syncs)
        self._next = time.monotonic() + self._settings.interval
        if saved is not None:
            self._first.set()
        elif self._server.has_parameters:
            self.snapshot_soon()

    def _choose(self) -> tuple[SavedSnapshot | None, int | None, bool]:
        """The snapshot to go on from; if the log continues it, from which record on, and whether after its end."""
        own = self._snapshots.names()
        siblings = {each: Snapshots(self._settings.snapshots / _folder_name(each)).names() for each in self._endpoints}
        self._number = max((name.number for names in siblings.values() for name in names), default=0)
        common = [name for name in own if all(name in names or not names for names in siblings.values())]
        self._common = common[0] if common else None
        if not own:
            return None, None, False
        newest = self._snapshots.read(own[0])
        begun = None if self._log_folder is None else read_beginning(self._log_folder)
        if begun is not None and begun.id == newest.manifest["log"]:
            return newest, newest.manifest["first_record"], False
        if begun is not None and begun.after == str(newest.name):
            return newest, 1, True
        absent = [endpoint for endpoint, names in siblings.items() if not names]
        if absent:
            self._lines.warning(
                "other servers have no snapshots here; what they go on with may be of another moment",
                folder=self._settings.snapshots, servers=", ".join(absent),
            )  # fmt: skip
        if self._common is not None:
            return self._snapshots.read(self._common), None, False
        if not any(newest.manifest["until"].values()):
            return None, None, False  # nobody has trained yet
        raise SnapshotError(
            f"the servers of this job have no snapshot in common in {self._settings.snapshots}; to begin anew, remove "
            "that folder"
        )

    def _common_one(self, saved: SavedSnapshot) -> list[SavedSnapshot]:
        """The last snapshot that all servers have, if it is another one: a server that loses its log needs it."""
        if self._common in (None, saved.name):
            return []
        try:
            return [self._snapshots.read(self._common)]
        except SnapshotError as error:
            self._lines.warning("the last common snapshot is of no use", reason=str(error))
            return []

    def _restore(self, saved: SavedSnapshot) -> None:
        """Takes over the state in a snapshot."""
        for key, ours in self._described.items():
            theirs = saved.manifest.get(key)
            if theirs != ours:
                raise SnapshotError(
                    f"{saved.folder} was saved with {key} {theirs}; this server has {ours}. Does it belong to another "
                    "job? Remove it, or choose another folder (FLAGS_rpc_server_snapshots)"
                )
        began = time.monotonic()
        with self._lock:
            try:
                self._server.restore(saved.state())
                for held in self._server.tables.values():
                    saved.load_table(held)
            except ValueError as error:
                raise SnapshotError(f"{saved.folder}: {error}") from error
        self.restored, self._round = True, saved.manifest["round"]
        age = max(0.0, time.time() - saved.manifest["time"])
        self._lines.warning(
            "restored a snapshot", round=self._round, age_seconds=age, seconds=time.monotonic() - began,
            folder=saved.folder,
        )  # fmt: skip

    def _replay(self, what: str, records: Any, last: int) -> int:
        """Does again what was recorded; returns the number of the last record."""
        before, began, self.replaying = last, time.monotonic(), True
        try:
            for number, record in records:
                with self._lock:
                    self._server.replay(record[:1], memoryview(record)[1:])
                last = number
        finally:
            self.replaying = False
        if last > before:
            seconds = time.monotonic() - began
            self._lines.warning(what, records=last - before, round=self._server.round, seconds=seconds)
        return last

    # Recording

    def record(self, buffers: Sequence[Any]) -> int:
        """Records what was done; returns the number to `wait` for."""
        if self.replaying:
            return 0
        self._changes += 1
        if self._part is not None and self._part.is_recording:
            self._part.record(buffers)
        return 0 if self._log is None else self._log.append(buffers)

    @property
    def _is_recording(self) -> bool:
        return self._log is not None or (self._part is not None and self._part.is_recording)

    def record_tree(self, kind: bytes, tree: Any) -> int:
        """Records what was done, as a tree."""
        return self.record(tree_record(kind, tree) if self._is_recording else ())

    def record_update(self, now: float, messages: Sequence[bytes]) -> None:
        """Records an update: the messages whose pushes it applied, in order. With the lock held."""
        self.record(update_record(now, messages) if self._is_recording else ())
        if self._part is not None:
            self._part.ends()

    @property
    def last(self) -> int:
        """The number of the last record."""
        return 0 if self._log is None else self._log.last

    def wait(self, number: int) -> None:
        """Returns when a record is on disk; without the lock."""
        if self._log is not None:
            self._log.wait(number)

    @property
    def has_first(self) -> bool:
        """Whether there is a snapshot to begin with, or will be none.

        Raises:
          SnapshotError: it could not be written.
        """
        if self._failed and self._round is None:
            raise SnapshotError(self._failed)
        return self._first.is_set()

    # Deciding when there is a snapshot

    def check(self) -> None:
        """Begins a snapshot if one is due; called about once a second."""
        full = self._log is not None and self._log.bytes > self._settings.log_bytes
        if self._server.has_parameters and (full or (self._is_first and time.monotonic() >= self._next)):
            self.snapshot_soon()

    def snapshot_soon(self) -> None:
        """Begins a snapshot on a thread of its own, unless one is being made."""
        with self._starting:
            if self._coordinator.stopped.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self._next = time.monotonic() + self._settings.interval
            thread = threading.Thread(target=self._try_snapshot, name="snapshot")
            thread.start()
            self._thread = thread

    def _try_snapshot(self) -> None:
        self._snapshot_since = time.monotonic()
        try:
            self.snapshot()
        except Exception as error:  # noqa: BLE001 - training goes on with the snapshot before
            self._next = min(self._next, time.monotonic() + _AGAIN)
            if not self._coordinator.stopped.is_set():
                self._lines.warning("no common snapshot", folder=self._settings.snapshots, reason=str(error))
        finally:
            self._snapshot_since = None

    def snapshot(self) -> None:
        """Has all servers write a snapshot; training goes on meanwhile.

        Raises:
          CutError: one of them could not.
        """
        if not self._is_first:
            self._ask(self._endpoints[0], pb.CutRequest(phase=pb.CutRequest.WANTED))
            return
        with self._cutting:
            changes = self._changes
            if self._written_at is not None and changes == self._saved_changes and self._server.applied():
                return  # nothing has changed
            self._number += 1
            self._coordinator.cut(self._number, _PATIENCE)
            self._saved_changes = changes

    # Taking part in one

    def handle(self, request: Any) -> Any:
        """Serves a CutRequest; returns the reply.

        Raises:
          CutError: this server cannot take part, or go on with it.
        """
        if request.phase == pb.CutRequest.WANTED:
            self.snapshot_soon()
            return pb.CutReply()
        check_name(request)
        name, phase = Name(request.number, request.id), request.phase
        if phase == pb.CutRequest.BEGIN:
            return self._begin_part(name)
        part = self._part
        if part is None or part.name != name:
            if phase == pb.CutRequest.END:
                raise CutError(f"snapshot {name.number} is not being made; was the server restarted?")
        elif phase == pb.CutRequest.END:
            return part.end(dict(request.until))
        elif phase == pb.CutRequest.ABANDON:
            part.abandon("another server could not take part")
            self._snapshots.tidy()
        elif not part.problem:
            self._snapshots.keep(self._snapshots.read(name))
            self._snapshots.tidy()
        return pb.CutReply()

    def _begin_part(self, name: Name) -> Any:
        with self._beginning:
            part = self._part
            if part is None or part.name != name:  # not repeated
                if not self._server.has_parameters:
                    return pb.CutReply(pending=True, text="it has no parameters yet")
                if part is not None:
                    part.abandon("another one was begun")
                if not self._writing.acquire(timeout=_BUSY):
                    return pb.CutReply(pending=True, text="it is writing tables to files")
                part = self._part = self._make_part(name)
        return pb.CutReply(applied=part.applied)

    def _make_part(self, name: Name) -> Part:
        try:
            with self._lock:
                began = time.perf_counter()
                first = None if self._log is None else self._log.rotate()
                log = "" if self._log is None else self._log.id
                described = {**self._described, "log": log, "first_record": first}
                written = self._writing.release
                part = Part(name, self._server, self._snapshots, self._lock, described, written, self._ended)
                self._part = part  # from now on it hears what is recorded
                pause = time.perf_counter() - began
        except BaseException:
            self._writing.release()
            raise
        self.pause_seconds(pause)
        part.start()
        return part

    def _ended(self, part: Part, failure: Exception | None) -> None:
        """The files of a snapshot are complete, or will not be."""
        if failure is not None:
            if not isinstance(failure, CutError):
                self._failed = f"cannot write a snapshot to {self._snapshots.folder}: {failure}"
                self._lines.error("snapshot failed", folder=self._snapshots.folder, reason=str(failure))
                self._set_first()
            return
        self._failed, self._round, self._number = "", part.round, max(self._number, part.name.number)
        self._written_at = time.monotonic()
        self._set_first()
        first = part.first_record
        if self._log is not None and first is not None:
            try:
                self._log.drop_before(first)
            except OSError as error:  # they are in nobody's way, and go with the next ones
                self._lines.warning("cannot remove files of the log", folder=self._log_folder, reason=str(error))
        self._lines.info("wrote a snapshot", round=self._round, bytes=part.size, seconds=part.seconds)

    def _set_first(self) -> None:
        with self._lock:
            self._first.set()
            self._lock.notify_all()

    @property
    def writing_since(self) -> float | None:
        """When the records that the log is writing were taken."""
        return None if self._log is None else self._log.writing_since

    def backlog(self) -> dict[str, object]:
        """What is not on disk yet."""
        since = self._snapshot_since
        snapshot = 0.0 if since is None else time.monotonic() - since
        unwritten = {} if self._log is None else {"unwritten_log_bytes": self._log.unwritten}
        return {**unwritten, "snapshot_running_seconds": round(snapshot, 1)}

    def status(self) -> dict[str, Any]:
        """For `refluid status`."""
        age = None if self._written_at is None else round(time.monotonic() - self._written_at, 3)
        return {
            "restored": self.restored,
            "snapshot_round": self._round,
            "snapshot_age": age,
            "log_bytes": None if self._log is None else self._log.bytes,
            "problem": self._failed,
        }

    def close(self, *, finished: bool) -> None:
        """Ends it. What a finished job leaves behind is removed: it was for a restart, models are saved elsewhere."""
        with self._starting:
            self._coordinator.stopped.set()
        if self._thread is not None:
            self._thread.join()
        if self._part is not None:
            self._part.abandon("the server ends")
        if self._log is not None:
            self._log.close()
        if finished:
            self._snapshots.remove()
            if self._log_folder is not None:
                remove_log(self._log_folder)
            for held in self._held:
                held.remove()
        self._release()

    def _release(self) -> None:
        while self._held:
            self._held.pop().close()


def _folder_name(endpoint: str) -> str:
    return endpoint.replace(":", "_").replace("/", "_")
