"""What a trainer counts of its conversation with servers, for its /metrics."""

from __future__ import annotations

from collections.abc import Callable

from refluid.runtime.observe.metrics import Endpoint, Metrics, serve_if_asked


class TrainerMetrics:
    """The numbers of one trainer.

    Args:
        trainer: which one it is.
        mode: its training mode.
        step: asked for the number of steps it has taken.
        queued: asked for the number of steps whose gradients wait to be sent (async).
        staleness: asked for the number of its own steps that its parameters do not show (async).
    """

    def __init__(
        self,
        trainer: int,
        mode: str,
        step: Callable[[], int],
        queued: Callable[[], int],
        staleness: Callable[[], int],
    ) -> None:
        self._name = f"trainer {trainer}"
        metrics = self.metrics = Metrics(role="trainer", trainer=trainer, mode=mode)
        self.received = metrics.counter("bytes_received_total", "Bytes of servers' answers")
        self.sent = metrics.counter("bytes_sent_total", "Bytes of messages to servers")
        self._pushes = metrics.counter("pushes_total", "Exchanges that sent gradients or differences")
        self._pulls = metrics.counter("pulls_total", "Exchanges that asked for parameters or rows of tables")
        self._retries = metrics.counter("retries_total", "Messages that were sent again")
        self._seconds = metrics.histogram("exchange_seconds", "One message to every server, until all have answered")
        metrics.gauge("steps", "Training steps taken", read=step)
        metrics.gauge("queue_depth", "Steps whose gradients wait to be sent", read=queued)
        metrics.gauge("staleness", "Own steps that the parameters do not show yet", read=staleness)

    def serve(self) -> Endpoint | None:
        """Starts /metrics if the environment asks for it."""
        return serve_if_asked(self.metrics, self._name)

    def exchanged(self, *, pushed: bool, pulled: bool, seconds: float) -> None:
        """An exchange is over."""
        if pushed:
            self._pushes.add()
        if pulled:
            self._pulls.add()
        self._seconds.observe(seconds)

    def retried(self) -> None:
        """A message had to be sent again."""
        self._retries.add()
