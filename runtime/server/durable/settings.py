"""What the flags say about how servers survive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from refluid import flags
from refluid.files.storage import AnyPath, RemotePath, at


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
