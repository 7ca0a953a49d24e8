"""A server that can be killed: it writes snapshots while it serves and, on request, logs updates before it replies.

A server that starts and finds files of its predecessor takes over its state: the last snapshot, then the updates of the
log. The log has what the server did, not what it was asked: pushes in the order in which they were applied, and sums
over servers that entered an update. So the same numbers come out again.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from refluid import flags
from refluid.files.storage import AnyPath, RemotePath, at
from refluid.log import Log as Lines
from refluid.runtime.server.durable.log import Log, read_log
from refluid.runtime.server.durable.snapshots import SavedSnapshot, SnapshotError, Snapshots
from refluid.runtime.server.durable.trees import from_bytes, to_buffers
from refluid.runtime.server.held_tables import HeldTable

UPDATE, SUM, JOIN, LEAVE, SHRINK = b"U", b"S", b"J", b"L", b"R"
_LENGTHS = struct.Struct("<dI")  # of an update: when it was, and of how many pushes
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Settings:
    """How a server survives.

    Attributes:
      snapshots: the folder for snapshots of all servers.
      interval: seconds between two snapshots.
      log: the folder for logs of all servers; None for no log.
      log_bytes: how large a log may grow before a snapshot replaces it.
      syncs: whether the log survives a crash of the machine, not only of the process.
    """

    snapshots: AnyPath
    interval: float
    log: Path | None
    log_bytes: int
    syncs: bool

    @classmethod
    def of_flags(cls) -> Settings | None:
        """What the flags say; None if servers keep nothing."""
        folder, log = flags.read_flag("FLAGS_rpc_server_snapshots"), flags.read_flag("FLAGS_rpc_server_log")
        if not folder:
            if log:
                raise ValueError(
                    "FLAGS_rpc_server_log is set and FLAGS_rpc_server_snapshots is not: a log is read after a snapshot"
                )
            return None
        where = at(log) if log else None
        if isinstance(where, RemotePath):
            raise ValueError(f"FLAGS_rpc_server_log is {log}; a log is on a disk of the server, snapshots need not be")
        return cls(
            at(folder),
            flags.read_flag("FLAGS_rpc_server_snapshot_secs"),
            where,
            flags.read_flag("FLAGS_rpc_server_log_mb") << 20,
            flags.read_flag("FLAGS_rpc_server_log_sync"),
        )


class Recoverable(Protocol):
    """What is kept, as `refluid.runtime.server.server.Server` offers it. All but `replay` with its lock held."""

    @property
    def tables(self) -> Mapping[str, HeldTable]: ...
    @property
    def has_parameters(self) -> bool: ...
    @property
    def round(self) -> int: ...
    def state(self) -> dict[str, Any]: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...
    def replay(self, kind: bytes, content: memoryview) -> None: ...


class Recovery:
    """What one server keeps on disk.

    Args:
      server: whose state it is.
      lock: held during updates.
      writing: held while tables are written to files.
      described: what tells this server from others: endpoint, mode, number of trainers.
    """

    def __init__(
        self,
        settings: Settings,
        server: Recoverable,
        lock: threading.Condition,
        writing: threading.Lock,
        described: Mapping[str, Any],
        lines: Lines,
    ):
        name = described["endpoint"].replace(":", "_").replace("/", "_")
        self._settings, self._server, self._lock, self._writing = settings, server, lock, writing
        self._described, self._lines = dict(described), lines
        self._snapshots = Snapshots(settings.snapshots / name)
        self._log_folder = None if settings.log is None else settings.log / name
        self._log: Log | None = None
        self._number = 0  # of the last snapshot
        self._round: int | None = None  # of the last snapshot
        self._written_at: float | None = None  # when the last snapshot was complete
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._first = threading.Event()  # there is a snapshot
        self._next = 0.0  # when the next one is due
        self._failed = ""
        self.replaying = False
        self.restored = False
        self.pause_seconds: Callable[[float], object] = lambda seconds: None  # told how long updates had to wait

    # Beginning

    def begin(self) -> None:
        """Takes over the state of a predecessor, if there was one, and begins to log."""
        saved, first = self._snapshots.newest(), 1
        if saved is not None:
            first = self._restore(saved)
        if self._log_folder is not None:
            last = self._replay(first) if saved is not None else 0
            self._log = Log(self._log_folder, last + 1, syncs=self._settings.syncs)
        self._next = time.monotonic() + self._settings.interval
        if saved is not None:
            self._first.set()
        elif self._server.has_parameters:
            self.snapshot_soon()

    def _restore(self, saved: SavedSnapshot) -> int:
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
        self.restored, self._number, self._round = True, saved.number, saved.manifest["round"]
        age = max(0.0, time.time() - saved.manifest["time"])
        self._lines.warning(
            "restored a snapshot", round=self._round, age_seconds=age, seconds=time.monotonic() - began,
            folder=saved.folder,
        )  # fmt: skip
        return saved.manifest["first_record"]

    def _replay(self, first: int) -> int:
        """Applies the records of the log from a number on; returns the number of the last one."""
        assert self._log_folder is not None
        last, began, self.replaying = first - 1, time.monotonic(), True
        try:
            for number, record in read_log(self._log_folder, first):
                with self._lock:
                    self._server.replay(record[:1], memoryview(record)[1:])
                last = number
        finally:
            self.replaying = False
        if last >= first:
            seconds = time.monotonic() - began
            self._lines.warning("replayed the log", records=last - first + 1, round=self._server.round, seconds=seconds)
        return last

    # Recording, with the lock held

    def record(self, kind: bytes, buffers: Sequence[Any]) -> int:
        """Logs what was done; returns the number to `wait` for."""
        if self._log is None or self.replaying:
            return 0
        return self._log.append([kind, *buffers])

    def record_tree(self, kind: bytes, tree: Any) -> int:
        """Logs what was done, as a tree."""
        return self.record(kind, [b"".join(to_buffers(tree))])

    def record_update(self, now: float, messages: Sequence[bytes]) -> None:
        """Logs an update: the messages whose pushes it applied, in order."""
        if self._log is None or self.replaying:
            return
        buffers: list[Any] = [_LENGTHS.pack(now, len(messages))]
        for message in messages:
            buffers += [_LENGTH.pack(len(message)), message]
        self.record(UPDATE, buffers)

    @property
    def logs(self) -> bool:
        """Whether it has a log."""
        return self._log_folder is not None

    @property
    def last(self) -> int:
        """The number of the last record."""
        return 0 if self._log is None else self._log.last

    def wait(self, number: int) -> None:
        """Returns when a record is on disk; without the lock."""
        if self._log is not None:
            self._log.wait(number)

    def wait_for_first(self) -> None:
        """Returns when there is a snapshot to begin with; without the lock."""
        self._first.wait()
        if self._failed:
            raise SnapshotError(self._failed)

    # Snapshots

    def check(self) -> None:
        """Begins a snapshot if one is due; called about once a second."""
        full = self._log is not None and self._log.bytes > self._settings.log_bytes
        if self._server.has_parameters and (full or time.monotonic() >= self._next):
            self.snapshot_soon()

    def snapshot_soon(self) -> None:
        """Begins a snapshot on a thread of its own, unless one is being made."""
        with self._starting:
            if self._thread is not None and self._thread.is_alive():
                return
            self._next = time.monotonic() + self._settings.interval
            self._thread = threading.Thread(target=self._try_snapshot, name="snapshot")
            self._thread.start()

    def _try_snapshot(self) -> None:
        try:
            self.snapshot()
            self._failed = ""
        except Exception as error:  # noqa: BLE001 - training goes on with the snapshot before
            self._failed = f"cannot write a snapshot to {self._snapshots.folder}: {error}"
            self._lines.error("snapshot failed", folder=self._snapshots.folder, reason=str(error))
        finally:
            self._first.set()

    def snapshot(self) -> None:
        """Writes a snapshot; updates wait while the state is fixed, and go on while it is written."""
        with self._writing:
            if self._server.round == self._round and self._written_at is not None:
                return  # nothing has changed
            number = self._number + 1
            with self._lock:
                began = time.perf_counter()
                tree = self._server.state()
                begun = self._snapshots.begin(number, self._server.tables)
                first = 1 if self._log is None else self._log.rotate()
                described = {**self._described, "round": self._server.round, "first_record": first}
                pause = time.perf_counter() - began
            self.pause_seconds(pause)
            size = self._snapshots.write(number, tree, begun, {**described, "time": time.time()})
            self._number, self._round, self._written_at = number, described["round"], time.monotonic()
            if self._log is not None:
                self._log.drop_before(first)
        seconds = time.perf_counter() - began
        self._lines.info("wrote a snapshot", round=self._round, bytes=size, seconds=seconds, pause_ms=1000 * pause)

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
        if self._thread is not None:
            self._thread.join()
        if self._log is not None:
            self._log.close()
        if finished:
            self._snapshots.remove()
            if self._log_folder is not None:
                for path in self._log_folder.glob("log.*"):
                    path.unlink()


def read_update(content: memoryview) -> tuple[float, list[bytes]]:
    """When an update was, and the messages whose pushes it applied."""
    now, count = _LENGTHS.unpack_from(content)
    messages, place = [], _LENGTHS.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(content, place)
        place += _LENGTH.size
        messages.append(bytes(content[place : place + length]))
        place += length
    return now, messages


def read_tree(content: memoryview) -> Any:
    """The tree of a record."""
    return from_bytes(bytes(content))
