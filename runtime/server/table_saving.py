"""The server's part of saving tables that grow: rows are written on a thread of their own while training goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from refluid.runtime.server.folders import folder_for
from refluid.runtime.server.held_tables import GrowingTable
from refluid.runtime.tables.files.saving import PartOrder, PartSnapshot, describe_table

_PENDING_AFTER = 5.0  # seconds
_KEPT = 8  # snapshots whose replies are kept, for requests that arrive again


class TableSaving:
    """Writes the rows of tables to files.

    Args:
      tables: by name, those of this server that grow.
      lock: held during updates, so that the tables of a snapshot are those between two of them.
    """

    def __init__(self, tables: Mapping[str, GrowingTable], lock: threading.Condition):
        self._tables, self._lock = tables, lock
        self._jobs: dict[str, _Job] = {}
        self._starting = threading.Lock()
        self.writing = threading.Lock()  # held while tables are written

    def save(self, request: Any) -> str | None:
        """Writes what a SnapshotRequest asks for; returns what was written, or None while it is not complete."""
        with self._starting:
            job = self._jobs.get(request.snapshot)
            if job is None:
                job = self._jobs[request.snapshot] = _Job(self, request)
                for old in list(self._jobs)[:-_KEPT]:
                    del self._jobs[old]
        return job.result()

    def write(self, request: Any) -> str:
        """Writes tables, one after the other, all as they are at one moment."""
        chosen = [(self._tables[order.table], order) for order in request.tables if order.table in self._tables]
        with self.writing:
            with self._lock:
                begun = _begin(request, chosen)
            try:
                found = {
                    table.part.whole: {
                        "table": describe_table(table.table, table.states, weights_only=order.weights_only),
                        "part": snapshot.write().describe(),
                    }
                    for (table, order), snapshot in zip(chosen, begun, strict=True)
                }
            finally:
                for snapshot in begun:
                    snapshot.close()
        return json.dumps(found)


def _begin(request: Any, chosen: Sequence[tuple[GrowingTable, Any]]) -> list[PartSnapshot]:
    begun: list[PartSnapshot] = []
    try:
        for table, order in chosen:
            folder = folder_for(request.folder)
            wanted = PartOrder(folder, request.snapshot, request.number, order.base, order.weights_only)
            begun.append(PartSnapshot(table.table, table.part.whole, (table.part.start, table.part.end), wanted))
    except BaseException:
        for snapshot in begun:
            snapshot.close()
        raise
    return begun


class _Job:
    """One snapshot, on its thread."""

    def __init__(self, saving: TableSaving, request: Any):
        self._saving, self._request = saving, request
        self._done, self._text, self._error = threading.Event(), "", None
        threading.Thread(target=self._run, name=f"snapshot {request.snapshot[:8]}").start()

    def _run(self) -> None:
        try:
            self._text = self._saving.write(self._request)
        except Exception as error:  # noqa: BLE001 - raised to whoever asks
            self._error = error
        finally:
            self._done.set()

    def result(self) -> str | None:
        if not self._done.wait(_PENDING_AFTER):
            return None
        if self._error is not None:
            raise self._error
        return self._text
