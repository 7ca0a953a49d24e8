"""What a trainer counts of its exchanges with servers, for its /metrics."""

from __future__ import annotations

from collections.abc import Callable

from refluid.log import Log
from refluid.runtime.observe.metrics import Metrics


class TrainerMetrics(Metrics):
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
        super().__init__(Log("trainer", trainer=trainer), role="trainer", trainer=trainer, mode=mode)
        self.received = self.counter("bytes_received_total", "Bytes of replies of servers")
        self.sent = self.counter("bytes_sent_total", "Bytes of requests to servers")
        self._pushes = self.counter("pushes_total", "Exchanges that pushed gradients or differences")
        self._pulls = self.counter("pulls_total", "Exchanges that pulled parameters or rows of tables")
        self._retries = self.counter("retries_total", "Requests that were sent again")
        self._seconds = self.histogram("exchange_seconds", "One request to every server, until all have replied")
        self.gauge("steps", "Training steps taken", step)
        self.gauge("queue_depth", "Steps whose gradients wait to be sent", queued)
        self.gauge("staleness", "Own steps that the parameters do not contain yet", staleness)

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
