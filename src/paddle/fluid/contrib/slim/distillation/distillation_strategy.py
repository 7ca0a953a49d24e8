"""Distillation as a part of compression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.contrib.slim.core.strategy import Strategy

__all__ = ["DistillationStrategy"]


class DistillationStrategy(Strategy):
    """Trains with the losses of distillers from ``start_epoch`` on, up to ``end_epoch``.

    Args:
      distillers: objects such as `L2Distiller`.
      start_epoch, end_epoch: the first epoch, and the first one without distillation.
    """

    def __init__(self, distillers: Sequence[Any] | None = None, start_epoch: int = 0, end_epoch: int = 0):
        super().__init__(start_epoch, end_epoch)
        self.distillers = distillers

    def restore_from_checkpoint(self, context: Any) -> None:
        if self.start_epoch < context.epoch_id < self.end_epoch:
            self._distil(context)

    def on_epoch_begin(self, context: Any) -> None:
        if self.start_epoch == context.epoch_id:
            self._distil(context)

    def on_epoch_end(self, context: Any) -> None:
        if context.epoch_id == self.end_epoch - 1:
            context.optimize_graph = None

    def _distil(self, context: Any) -> None:
        """Trains the student and the teachers' losses; teachers are not trained."""
        graph = context.train_graph.clone()
        for teacher in context.teacher_graphs:
            for variable in teacher.program.list_vars():
                variable.stop_gradient = True
            graph.merge(teacher)
        if "loss" in graph.out_nodes:
            graph.out_nodes["student_loss"] = graph.out_nodes["loss"]
        for distiller in self.distillers or ():
            graph = distiller.distiller_loss(graph)
        if context.distiller_optimizer is None:
            raise ValueError("distillation needs the argument distiller_optimizer of Compressor")
        context.optimize_graph = graph.get_optimize_graph(context.distiller_optimizer, context.place, context.scope)
