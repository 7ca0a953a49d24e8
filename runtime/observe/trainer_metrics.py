"""What a trainer counts of its exchanges with servers, for its /metrics."""

from __future__ import annotations

from collections.abc import Callable

from refluid.log import Log
from refluid.runtime.observe.metrics import Endpoint, Metrics, serve_if_requested


class TrainerMetrics:
    """The metrics of one trainer.

    Args:
        trainer: its id.
        mode: its training mode.
        step: gives the number of steps it has taken.
        queued: gives the number of steps whose gradients wait to be sent (async).
        staleness: gives the number of its own steps that its parameters do not contain (async).
    """

    def __init__(
        self,
        trainer: int,
        mode: str,
        step: Callable[[], int],
        queued: Callable[[], int],
        staleness: Callable[[], int],
    ) -> None:
        self._log = Log("trainer", trainer=trainer)
        metrics = self.metrics = Metrics(role="trainer", trainer=trainer, mode=mode)
        self.received = metrics.counter("bytes_received_total", "Bytes of replies of servers")
        self.sent = metrics.counter("bytes_sent_total", "Bytes of requests to servers")
        self._pushes = metrics.counter("pushes_total", "Exchanges that pushed gradients or differences")
        self._pulls = metrics.counter("pulls_total", "Exchanges that pulled parameters or rows of tables")
        self._retries = metrics.counter("retries_total", "Requests that were sent again")
        self._seconds = metrics.histogram("exchange_seconds", "One request to every server, until all have replied")
        metrics.gauge("steps", "Training steps taken", step)
        metrics.gauge("queue_depth", "Steps whose gradients wait to be sent", queued)
        metrics.gauge("staleness", "Own steps that the parameters do not contain yet", staleness)

    def serve(self) -> Endpoint | None:
        """Starts /metrics if the environment requests it."""
        return serve_if_requested(self.metrics, self._log)

    def exchanged(self, *, pushed: bool, pulled: bool, seconds: float) -> None:
        """Records an exchange."""
        if pushed:
            self._pushes.inc()
        if pulled:
            self._pulls.inc()
        self._seconds.observe(seconds)

    def retried(self) -> None:
        """Records a request that was sent again."""
        self._retries.inc()
