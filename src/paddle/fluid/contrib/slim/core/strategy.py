"""What a strategy of compression may do, and when."""

from __future__ import annotations

from typing import Any

__all__ = ["Strategy"]


class Strategy:
    """Changes the graphs of a compression at certain times; subclasses override what they need.

    Args:
      start_epoch, end_epoch: when the strategy is at work.
    """

    def __init__(self, start_epoch: int = 0, end_epoch: int = 0):
        self.start_epoch, self.end_epoch = start_epoch, end_epoch

    def on_compression_begin(self, context: Any) -> None: ...

    def on_epoch_begin(self, context: Any) -> None: ...

    def on_epoch_end(self, context: Any) -> None: ...

    def on_batch_begin(self, context: Any) -> None: ...

    def on_batch_end(self, context: Any) -> None: ...

    def on_compression_end(self, context: Any) -> None: ...

    def restore_from_checkpoint(self, context: Any) -> None:
        """Makes the changes that were made before the checkpoint."""
