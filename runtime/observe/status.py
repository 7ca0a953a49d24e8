"""``refluid status``: requests the state of parameter servers and shows it as tables."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import accumulate
from typing import Any

import grpc
from rich.console import Console, Group, RenderableType
from rich.live import Live

from refluid.runtime.observe.asking import NoStatusError, request_status
from refluid.runtime.observe.examination import Status, causes, joined_waits
from refluid.runtime.observe.waits import Wait, listed
from refluid.runtime.transport.connection import Connection
from refluid.tables import as_text, table

_REPLY_TIMEOUT = 3.0  # seconds
_SHOWN_AFTER = 2.0  # seconds; shorter waits are a matter of course

Found = Mapping[str, Status | None]  # endpoint -> status, or None if the server does not reply


class Watcher:
    """Keeps connections to servers and requests the status of all of them at once."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.endpoints = list(endpoints)
        self._connections = [Connection(endpoint) for endpoint in endpoints]
        self._pool = ThreadPoolExecutor(len(self.endpoints))

    def request(self) -> dict[str, Status | None]:
        """The status of each server; None if it does not reply."""
        return dict(zip(self.endpoints, self._pool.map(_request, self._connections), strict=True))

    def close(self) -> None:
        """Closes the connections."""
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()


def _request(connection: Connection) -> Status | None:
    try:
        return request_status(connection, _REPLY_TIMEOUT)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            raise ValueError(error.details()) from None
        return None
    except NoStatusError:  # `refluid doctor` says more
        return None


def next_trainer(endpoints: Sequence[str]) -> int:
    """The first number that no trainer of a job has or has had.

    Raises:
      ValueError: a server does not reply.
    """
    with closing(Watcher(endpoints)) as watcher:
        found = watcher.request()
    silent = [endpoint for endpoint, status in found.items() if status is None]
    if silent:
        raise ValueError(f"no reply from {', '.join(silent)}: which numbers trainers have is not known; give --first")
    trainers = [view["trainer"] for status in found.values() if status is not None for view in status["trainers"]]
    return max(trainers, default=-1) + 1


def show_once(endpoints: Sequence[str], *, as_json: bool) -> int:
    """Prints the status of servers; returns 1 if one of them does not reply."""
    with closing(Watcher(endpoints)) as watcher:
        found = watcher.request()
    print(json.dumps(found) if as_json else as_text(tables(found, dict.fromkeys(found), 1.0)), flush=True)
    return int(None in found.values())


def watch(endpoints: Sequence[str], *, as_json: bool, interval: float) -> int:
    """Shows the status of servers until it is interrupted or all servers have ended."""
    watcher, console = Watcher(endpoints), Console()
    before, requested = dict.fromkeys(watcher.endpoints), time.monotonic()
    live = Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else None
    try:
        while True:
            found, now = watcher.request(), time.monotonic()
            if not any(found.values()) and any(before.values()):
                print("all servers have ended", flush=True)
                return 0
            if live is not None:
                live.start()
                live.update(tables(found, before, now - requested), refresh=True)
            else:
                shown = json.dumps(found) if as_json else as_text(tables(found, before, now - requested))
                print(shown, flush=True)
            before, requested = found, now
            time.sleep(interval)
    except KeyboardInterrupt:
        return 0
    finally:
        if live is not None:
            live.stop()
        watcher.close()


def tables(found: Found, before: Found, seconds: float) -> RenderableType:
    """Tables of servers, embedding tables, trainers, and who waits for whom; rates are since ``before``."""
    heads = "server mode round per_s in out pushes pulls p50_ms p99_ms update_ms queue stale waits_for".split()
    servers = [_server_row(endpoint, status, before[endpoint], seconds) for endpoint, status in found.items()]
    shown: list[RenderableType] = [table([head.replace("_", " ") for head in heads], servers)]
    held = [row for endpoint, status in found.items() if status is not None for row in _table_rows(endpoint, status)]
    if held:
        shown += ["", table(["table", "server", "rows", "memory", "budget", "full", "evicted"], held)]
    trainers = _trainer_rows([status for status in found.values() if status is not None])
    if trainers:
        heads = ["trainer", "host", "steps", "behind", "last push", "last seen"]
        heads += ["staleness", "own at most", "lead at most", "state"]
        shown += ["", table(heads, trainers)]
    waits = [wait for wait in joined_waits(found) if wait.seconds >= _SHOWN_AFTER]
    if waits:
        shown += ["", wait_table(waits)]
    shown += [f"likely cause: {cause.text}" for cause in causes(found)]
    return Group(*shown)


def wait_table(waits: Sequence[Wait]) -> RenderableType:
    """Who waits for whom."""
    rows = [
        [listed(wait.who), wait.what, listed(wait.awaited), f"{wait.seconds:.0f} s", wait.problem] for wait in waits
    ]
    return table(["who waits", "for what", "for whom", "since", "problem"], rows)


def _server_row(endpoint: str, status: Status | None, before: Status | None, seconds: float) -> list[str]:
    if status is None:
        return [endpoint, "no reply", *[""] * 12]
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
        _spread({int(steps): count for steps, count in status["staleness"].items() if steps.isdigit()}),
        ", ".join(f"trainer {trainer}" for trainer in status["awaited"]),
    ]


def _table_rows(endpoint: str, status: Status) -> list[list[str]]:
    return [
        [
            each["table"],
            endpoint,
            str(each["rows"]),
            amount(each["bytes"]),
            amount(each["budget"]) if each["budget"] else "any",
            f"{each['rows'] / each['most_rows']:.0%}" if each["most_rows"] else "",
            str(each["evicted"]),
        ]
        for each in status.get("tables", ())
    ]


def _trainer_rows(statuses: Sequence[Status]) -> list[list[str]]:
    """Every trainer: seen by the server that heard of it last, with the steps and staleness of the worst."""
    rows: list[list[str]] = []
    seen: dict[int, list[dict[str, Any]]] = {}  # one that was added may not have joined all servers yet
    for view in (view for status in statuses for view in status["trainers"]):
        seen.setdefault(view["trainer"], []).append(view)
    for _, views in sorted(seen.items()):
        rows.append(
            [
                str(views[0]["trainer"]),
                next((view["host"] for view in views if view["host"]), ""),
                str(min(view["steps"] for view in views)),
                str(max(view["behind"] for view in views)),
                _ago([view["last_push"] for view in views]),
                _ago([view["last_seen"] for view in views]),
                str(max(view["staleness"] for view in views)),
                str(max(view["max_staleness"] for view in views)),
                next((str(view["max_lead"]) for view in views if view["max_lead"] is not None), "any"),
                _state(views),
            ]
        )
    return rows


def _state(views: Sequence[Mapping[str, Any]]) -> str:
    """What a trainer does, as the servers see it: a straggler trains, however far it is behind."""
    for name, text in (("lost", "lost, waited for"), ("left_out", "left out")):
        if any(view[name] for view in views):
            return text
    if all(view["left"] for view in views):
        return "left"
    return "training" if all(view["joined"] for view in views) else "has not joined"


def _ago(ages: Sequence[float | None]) -> str:
    found = [age for age in ages if age is not None]
    return f"{min(found):.1f} s ago" if found else "never"


def _spread(counts: Mapping[int, int]) -> str:
    """The median, the 95th percentile and the largest of numbers that were counted: "1 2 4"."""
    if not counts:
        return ""
    values, total = sorted(counts), sum(counts.values())
    below = dict(zip(values, accumulate(counts[value] for value in values), strict=True))
    median, high = (next(v for v in values if below[v] >= part * total) for part in (0.5, 0.95))
    return f"{median} {high} {values[-1]}"


def amount(size: float) -> str:
    """A number of bytes, for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
