"""``refluid status``: asks parameter servers what they are doing, and draws it as tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from refluid.runtime.transport import wire
from refluid.runtime.transport.connection import Connection
from refluid.runtime.transport.wire import pb

_PATIENCE = 3.0  # seconds for an answer
_CLEAR = "\x1b[H\x1b[2J"

Status = dict[str, Any]


class Watcher:
    """Keeps lines to servers, and asks them all at once."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.endpoints = list(endpoints)
        self._connections = [Connection(endpoint) for endpoint in endpoints]
        self._pool = ThreadPoolExecutor(len(self.endpoints))

    def ask(self) -> dict[str, Status | None]:
        """What each server says of itself; None if it does not answer."""
        return dict(zip(self.endpoints, self._pool.map(_ask, self._connections), strict=True))

    def close(self) -> None:
        """Hangs up."""
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()


def _ask(connection: Connection) -> Status | None:
    try:
        message = connection.call("Status", wire.encode(pb.Empty()), _PATIENCE)
    except grpc.RpcError:
        return None
    return json.loads(wire.decode(pb.Text, message).text)


def watch(
    endpoints: Sequence[str],
    draw: Callable[[Mapping[str, Status | None], Mapping[str, Status | None], float], str],
    *,
    once: bool,
    interval: float,
) -> int:
    """Asks and draws, once or until interrupted or all servers have ended; 1 if one was asked in vain."""
    watcher = Watcher(endpoints)
    before, asked = dict.fromkeys(watcher.endpoints), time.monotonic()
    try:
        while True:
            found, now = watcher.ask(), time.monotonic()
            text = draw(found, before, now - asked)
            print(_CLEAR + text if not once and sys.stdout.isatty() else text, flush=True)
            if once:
                return int(None in found.values())
            if not any(found.values()) and any(before.values()):
                print("all servers have ended")
                return 0
            before, asked = found, now
            time.sleep(interval)
    except KeyboardInterrupt:
        return 0
    finally:
        watcher.close()


def as_json(found: Mapping[str, Status | None], before: Mapping[str, Status | None], seconds: float) -> str:
    """One line of JSON."""
    return json.dumps(found)


def as_tables(found: Mapping[str, Status | None], before: Mapping[str, Status | None], seconds: float) -> str:
    """A table of servers and one of trainers; rates are since the last look."""
    servers = [_server_row(endpoint, status, before[endpoint], seconds) for endpoint, status in found.items()]
    heads = "server mode round per_s in out pushes pulls p50_ms p99_ms update_ms queue waits_for".split()
    text = table([head.replace("_", " ") for head in heads], servers)
    trainers = _trainer_rows([status for status in found.values() if status is not None])
    if trainers:
        text += "\n\n" + table(["trainer", "steps", "last seen", "staleness", "state"], trainers)
    return text


def _server_row(endpoint: str, status: Status | None, before: Status | None, seconds: float) -> list[str]:
    if status is None:
        return [endpoint, "does not answer", *[""] * 11]
    rate = f"{(status['round'] - before['round']) / seconds:.1f}" if before is not None else ""
    exchange, update = status["exchange_ms"] or {}, status["update_ms"] or {}
    return [
        endpoint,
        status["mode"],
        str(status["round"]),
        rate,
        amount(status["bytes_received"]),
        amount(status["bytes_sent"]),
        str(status["pushes"]),
        str(status["pulls"]),
        _number(exchange.get("p50")),
        _number(exchange.get("p99")),
        _number(update.get("p50")),
        str(status["queue_depth"]),
        ", ".join(f"trainer {trainer}" for trainer in status["awaited"]),
    ]


def _trainer_rows(statuses: Sequence[Status]) -> list[list[str]]:
    """Every trainer, as the server knows it that has heard of it last or that it is furthest behind at."""
    rows: list[list[str]] = []
    for views in zip(*(status["trainers"] for status in statuses), strict=True):
        ages = [view["last_seen"] for view in views if view["last_seen"] is not None]
        joined, left = all(view["joined"] for view in views), all(view["left"] for view in views)
        rows.append(
            [
                str(views[0]["trainer"]),
                str(min(view["steps"] for view in views)),
                f"{min(ages):.1f} s ago" if ages else "never",
                str(max(view["staleness"] for view in views)),
                "left" if left else "training" if joined else "not there yet",
            ]
        )
    return rows


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as need be; numbers stand to the right."""
    lines = [list(heads), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    right = [
        column > 0 and all(not row[column] or row[column][0].isdigit() for row in rows) for column in range(len(heads))
    ]
    shown = []
    for line in lines:
        cells = zip(line, widths, right, strict=True)
        shown.append("  ".join(cell.rjust(width) if end else cell.ljust(width) for cell, width, end in cells).rstrip())
    return "\n".join(shown)


def amount(size: float) -> str:
    """A number of bytes, for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
