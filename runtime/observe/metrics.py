"""Numbers about a running process: counters, gauges and histograms, in the text form that Prometheus reads.

A server or trainer makes one `Metrics`, asks it once for each metric and keeps what it gets: recording then costs a
lock that nobody else holds and no lookup. Reading is the slow side, and happens on a thread of the HTTP endpoint.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

QUANTILES = (0.5, 0.99)
WINDOW = 1024
PORT_VARIABLE = "REFLUID_METRICS_PORT"

Labels = tuple[tuple[str, str], ...]


class Counter:
    """A sum that only grows."""

    kind = "counter"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value: float = 0

    def add(self, amount: float = 1) -> None:
        """Adds ``amount``, from any thread."""
        with self._lock:
            self._value += amount

    @property
    def value(self) -> float:
        return self._value

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """The lines of the text form: end of the name, labels of their own, value."""
        yield "", (), self._value


class Gauge:
    """A value that goes up and down, set by its owner or read from it when asked for."""

    kind = "gauge"

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._read = read
        self._value: float = 0

    def set(self, value: float) -> None:
        """Replaces the value."""
        self._value = value

    @property
    def value(self) -> float:
        return self._value if self._read is None else self._read()

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """The lines of the text form."""
        yield "", (), self.value


class Histogram:
    """Count and sum of all observations, and quantiles of the last ``window`` of them."""

    kind = "summary"  # Prometheus' word for quantiles that are worked out here

    def __init__(self, window: int = WINDOW) -> None:
        self._lock = threading.Lock()
        self._recent: deque[float] = deque(maxlen=window)
        self._count = 0
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Takes one observation, from any thread."""
        with self._lock:
            self._recent.append(value)
            self._count += 1
            self._sum += value

    @property
    def count(self) -> int:
        return self._count

    @property
    def sum(self) -> float:
        return self._sum

    def quantile(self, fraction: float) -> float:
        """The smallest recent observation that at least ``fraction`` of them do not exceed; NaN before the first."""
        return _quantile(self._sorted()[0], fraction)

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """The lines of the text form."""
        recent, count, total = self._sorted()
        for fraction in QUANTILES:
            yield "", (("quantile", str(fraction)),), _quantile(recent, fraction)
        yield "_sum", (), total
        yield "_count", (), count

    def _sorted(self) -> tuple[list[float], int, float]:
        with self._lock:
            recent, count, total = list(self._recent), self._count, self._sum
        recent.sort()
        return recent, count, total


def _quantile(ordered: list[float], fraction: float) -> float:
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


Metric = Counter | Gauge | Histogram
_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)


class Metrics:
    """The metrics of one process; ``labels`` stand on every line, as in ``Metrics(role="server", endpoint=...)``."""

    def __init__(self, prefix: str = "refluid_", **labels: object) -> None:
        self._prefix = prefix
        self._labels = _labels(labels)
        self._lock = threading.Lock()
        self._metrics: dict[tuple[str, Labels], Metric] = {}
        self._help: dict[str, tuple[str, str]] = {}  # name -> kind and help

    def counter(self, name: str, help: str = "", **labels: object) -> Counter:
        """The counter of this name and these labels, made when first asked for."""
        return self._get(Counter, name, help, labels)

    def gauge(self, name: str, help: str = "", read: Callable[[], float] | None = None, **labels: object) -> Gauge:
        """The gauge of this name and these labels; with ``read`` its value is whatever that returns."""
        return self._get(Gauge, name, help, labels, read)

    def histogram(self, name: str, help: str = "", window: int = WINDOW, **labels: object) -> Histogram:
        """The histogram of this name and these labels."""
        return self._get(Histogram, name, help, labels, window)

    def forget(self, name: str, **labels: object) -> None:
        """Drops a metric, as when the trainer that it tells about has left."""
        with self._lock:
            self._metrics.pop((name, _labels(labels)), None)

    def text(self) -> str:
        """All metrics in the text exposition format of Prometheus."""
        with self._lock:
            metrics, help = dict(self._metrics), dict(self._help)
        lines: list[str] = []
        for name, (kind, meaning) in help.items():
            lines += [f"# HELP {self._prefix}{name} {_escape(meaning)}"] if meaning else []
            lines.append(f"# TYPE {self._prefix}{name} {kind}")
            for (other, labels), metric in metrics.items():
                if other == name:
                    lines += [
                        f"{self._prefix}{name}{end}{_written((*self._labels, *labels, *own))} {_number(value)}"
                        for end, own, value in metric.samples()
                    ]
        return "\n".join(lines) + "\n"

    def _get(self, cls: type[_Metric], name: str, help: str, labels: dict[str, object], *arguments: Any) -> _Metric:
        key = name, _labels(labels)
        with self._lock:
            kind, meaning = self._help.setdefault(name, (cls.kind, help))
            if kind != cls.kind:
                raise ValueError(f"metric {name} is a {kind}, not a {cls.kind}")
            if help and not meaning:
                self._help[name] = kind, help
            found = self._metrics.get(key)
            if not isinstance(found, cls):
                found = self._metrics[key] = cls(*arguments)
            return found


def _labels(labels: dict[str, object]) -> Labels:
    return tuple((name, str(value)) for name, value in labels.items())


def _written(labels: Labels) -> str:
    inner = ",".join(f'{name}="{_escape(value, quoted=True)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def _escape(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf"
    return repr(int(value) if value == int(value) else float(value))


class Endpoint:
    """``/metrics`` over HTTP, on a daemon thread, until `close`."""

    def __init__(self, metrics: Metrics, port: int, host: str = "") -> None:
        self._server = _Server((host, port), _handler_of(metrics))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="refluid-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops answering and frees the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever asks for metrics may hang up early; that is no news."""


def serve_if_asked(metrics: Metrics, name: str) -> Endpoint | None:
    """Starts the endpoint on the port that REFLUID_METRICS_PORT names; 0 is any free one. ``name`` is who is speaking.

    A port that is taken is said and then done without: training is worth more than being watched.
    """
    text = os.environ.get(PORT_VARIABLE, "")
    if not text:
        return None
    if not text.isdigit() or int(text) > 65535:
        raise ValueError(f"{PORT_VARIABLE} is {text!r}; expected a port, or 0 for any free one")
    try:
        endpoint = Endpoint(metrics, int(text))
    except OSError as error:
        print(f"{name}: no metrics, port {text} cannot be used ({error.strerror})", file=sys.stderr, flush=True)
        return None
    print(f"{name}: metrics on port {endpoint.port}", file=sys.stderr, flush=True)
    return endpoint


def _handler_of(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.split("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            body = metrics.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A scrape every few seconds is not worth a line."""

    return Handler
