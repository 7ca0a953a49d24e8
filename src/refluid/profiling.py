"""A recorder of timed events, and two views of a recording: a table and a browser's trace viewer.

Timed code is written ``with profiling.record("compile"):``. Without a recording that costs one test and no allocation.
Events may nest and may come from any thread.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from refluid.files.writing import atomic_write

SORT_KEYS = ("calls", "total", "max", "min", "ave")


class Event(NamedTuple):
    """A timed event; times are in nanoseconds of a monotonic clock."""

    name: str
    thread: int
    start: int
    end: int


@dataclass(frozen=True)
class Recording:
    """The events between start and stop."""

    events: list[Event]
    start: int
    end: int


class _Recorder:
    def __init__(self, jax_trace_dir: str | None):
        self.jax_trace_dir = jax_trace_dir
        self.events: list[Event] = []
        self.start = time.perf_counter_ns()


class _Span:
    """One run of a ``with record(...)`` block."""

    __slots__ = ("_events", "_name", "_start")

    def __init__(self, events: list[Event], name: str):
        self._events, self._name = events, name

    def __enter__(self) -> None:
        self._start = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        self._events.append(Event(self._name, threading.get_ident(), self._start, time.perf_counter_ns()))


recorder: _Recorder | None = None  # None unless events are being recorded
_OFF = nullcontext()


def record(name: str) -> AbstractContextManager[None]:
    """Times the block inside as one event."""
    return _OFF if recorder is None else _Span(recorder.events, name)


def start(jax_trace_dir: str | None = None) -> None:
    """Starts recording, unless a recording is active.

    Args:
      jax_trace_dir: also let JAX's own profiler write its trace there.
    """
    global recorder
    if recorder is not None:
        return
    if jax_trace_dir is not None:
        import jax

        jax.profiler.start_trace(jax_trace_dir)
    recorder = _Recorder(jax_trace_dir)


def reset() -> None:
    """Discards the events recorded so far."""
    if recorder is not None:
        recorder.events.clear()
        recorder.start = time.perf_counter_ns()


def stop() -> Recording | None:
    """Stops and returns the recording, or None if there is none."""
    global recorder
    if recorder is None:
        return None
    stopped, recorder = recorder, None
    recording = Recording(stopped.events, stopped.start, time.perf_counter_ns())
    if stopped.jax_trace_dir is not None:
        import jax

        jax.profiler.stop_trace()
    return recording


class Row(NamedTuple):
    """All events of one name; times in milliseconds, ratio as a share of the recorded time."""

    name: str
    calls: int
    total: float
    min: float
    max: float
    ave: float
    ratio: float


def summarize(recording: Recording, sorted_key: str | None = None) -> list[Row]:
    """One row for each event name, largest ``sorted_key`` first, or in order of appearance."""
    durations: dict[str, list[float]] = {}
    for event in sorted(recording.events, key=lambda event: event.start):
        durations.setdefault(event.name, []).append((event.end - event.start) / 1e6)
    recorded = max(1, recording.end - recording.start) / 1e6
    rows = [
        Row(name, len(times), sum(times), min(times), max(times), sum(times) / len(times), sum(times) / recorded)
        for name, times in durations.items()
    ]
    if sorted_key is not None:
        rows.sort(key=lambda row: getattr(row, sorted_key), reverse=True)
    return rows


def table(rows: Iterable[Row]) -> str:
    """The rows as text, in columns."""
    rows = list(rows)
    width = max([len("Event"), *(len(row.name) for row in rows)])
    lines = [f"{'Event':<{width}}  {'Calls':>8} {'Total':>12} {'Min.':>12} {'Max.':>12} {'Ave.':>12} {'Ratio.':>8}"]
    for row in rows:
        times = " ".join(f"{time:>12.4f}" for time in (row.total, row.min, row.max, row.ave))
        lines.append(f"{row.name:<{width}}  {row.calls:>8} {times} {row.ratio:>8.4f}")
    return "\n".join(lines)


def write_trace(recording: Recording, path: str) -> None:
    """Writes the events in Chrome's trace-event format, for chrome://tracing and ui.perfetto.dev."""
    threads = {event.thread: number for number, event in enumerate(reversed(recording.events))}
    events = [
        {
            "name": event.name,
            "cat": "refluid",
            "ph": "X",
            "ts": (event.start - recording.start) / 1e3,
            "dur": (event.end - event.start) / 1e3,
            "pid": 0,
            "tid": threads[event.thread],
        }
        for event in recording.events
    ]
    with atomic_write(path) as stream:
        stream.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode())
