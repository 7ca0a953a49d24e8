"""Metrics of one server or trainer, through `prometheus_client`: a registry of its own, and /metrics over HTTP.

Every metric is bound to its labels when it is made, so that recording is one call without a lookup. The library's
global registry is not used: a process may hold several servers, and the user's own metrics.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from refluid.log import Log

PORT_VARIABLE, HOST_VARIABLE = "REFLUID_METRICS_PORT", "REFLUID_METRICS_HOST"
LOOPBACK = "127.0.0.1"
# Seconds: 0.1 ms to 50 s. The same for every process, so that histograms of servers can be added up.
SECONDS_BUCKETS = tuple(round(digit * 10.0**power, 4) for power in range(-4, 2) for digit in (1, 2, 5))
# Numbers of steps.
COUNT_BUCKETS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)


class Metrics:
    """Makes metrics that carry ``labels``, as in ``Metrics(log, role="server", endpoint=...)``, named refluid_..."""

    def __init__(self, log: Log, **labels: object) -> None:
        self._log = log
        self.registry = CollectorRegistry()
        self._labels = {name: str(value) for name, value in labels.items()}

    def counter(self, name: str, help: str) -> Counter:
        """A sum that only grows."""
        return Counter(f"refluid_{name}", help, list(self._labels), registry=self.registry).labels(**self._labels)

    def histogram(self, name: str, help: str, buckets: Sequence[float] = SECONDS_BUCKETS) -> Histogram:
        """Observations, by default of seconds, counted by buckets."""
        made = Histogram(f"refluid_{name}", help, list(self._labels), registry=self.registry, buckets=buckets)
        return made.labels(**self._labels)

    def gauge(self, name: str, help: str, read: Callable[[], float]) -> None:
        """A value that is read from its owner with every scrape."""
        made = Gauge(f"refluid_{name}", help, list(self._labels), registry=self.registry)
        made.labels(**self._labels).set_function(read)

    def gauges(self, name: str, help: str, label: str, reads: Mapping[str, Callable[[], float]]) -> Gauge:
        """A gauge for every value of another label; `add_to` adds one for another value."""
        made = Gauge(f"refluid_{name}", help, [*self._labels, label], registry=self.registry)
        for value, read in reads.items():
            self.add_to(made, label, value, read)
        return made

    def add_to(self, gauges: Gauge, label: str, value: str, read: Callable[[], float]) -> None:
        """A gauge for another value of a label."""
        gauges.labels(**self._labels, **{label: value}).set_function(read)

    def serve(self) -> Endpoint | None:
        """Starts /metrics on the port that REFLUID_METRICS_PORT names, if it is set; 0 takes any free port.

        Only this machine can reach it, unless REFLUID_METRICS_HOST names another address to listen at.
        A port that is in use is logged and training goes on without metrics.
        """
        text = os.environ.get(PORT_VARIABLE, "")
        if not text:
            return None
        host = os.environ.get(HOST_VARIABLE) or LOOPBACK
        if not text.isdigit() or int(text) > 65535:
            raise ValueError(f"{PORT_VARIABLE} is {text!r}; expected a port, or 0 for any free one")
        try:
            endpoint = Endpoint(self.registry, int(text), host)
        except OSError as error:
            self._log.warning("cannot serve metrics", port=text, reason=error.strerror, host=host)
            return None
        self._log.info("serving metrics", port=endpoint.port, host=host)
        return endpoint


def value_of(counter: Counter) -> int:
    """What a counter has counted."""
    (family,) = counter.collect()
    return next(int(sample.value) for sample in family.samples if sample.name.endswith("_total"))


def quantiles(histogram: Histogram, fractions: tuple[float, ...] = (0.5, 0.99)) -> dict[str, float] | None:
    """Estimates such as ``{"p50": 0.0021}``, interpolated within buckets as Prometheus does; None before the first."""
    (family,) = histogram.collect()
    counts = [(float(s.labels["le"]), s.value) for s in family.samples if s.name.endswith("_bucket")]
    total = counts[-1][1]
    if not total:
        return None
    return {f"p{100 * fraction:g}": _quantile(counts, fraction * total) for fraction in fractions}


def _quantile(counts: list[tuple[float, float]], rank: float) -> float:
    lower, below = 0.0, 0.0
    for upper, count in counts:
        if count >= rank:
            return lower if math.isinf(upper) else lower + (upper - lower) * (rank - below) / (count - below)
        lower, below = upper, count
    raise AssertionError("the last bucket holds all observations")


class Endpoint:
    """/metrics over HTTP, on a daemon thread, until `close`."""

    def __init__(self, registry: CollectorRegistry, port: int, host: str = LOOPBACK) -> None:
        self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stops serving and frees the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
