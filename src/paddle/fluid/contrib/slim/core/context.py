"""What strategies see of a compression: its graphs, its readers, and how it went so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from paddle.fluid.contrib.slim.graph import GraphWrapper, SlimGraphExecutor
from refluid.log import Log
from refluid.scope import Scope

__all__ = ["Context"]
_log = Log("compression")


class Context:
    """The state of a compression.

    Attributes:
      train_graph, eval_graph, teacher_graphs: what strategies change.
      optimize_graph: the graph that is trained, made of ``train_graph`` and an optimizer; None to have it made anew.
      epoch_id, batch_id: where training is.
      eval_results: output of ``eval_graph`` -> its values after each epoch.
    """

    def __init__(
        self,
        place: Any,
        scope: Scope,
        train_graph: GraphWrapper | None = None,
        train_reader: Callable[[], Any] | None = None,
        eval_graph: GraphWrapper | None = None,
        eval_reader: Callable[[], Any] | None = None,
        teacher_graphs: Any = None,
        train_optimizer: Any = None,
        distiller_optimizer: Any = None,
        search_space: Any = None,
    ):
        self.epoch = self.epoch_id = self.batch_id = 0
        self.k_v: dict[str, Any] = {}
        self.place, self.scope = place, scope
        self.train_graph, self.train_reader = train_graph, train_reader
        self.eval_graph, self.eval_reader = eval_graph, eval_reader
        self.teacher_graphs = teacher_graphs or []
        self.train_optimizer, self.distiller_optimizer = train_optimizer, distiller_optimizer
        self.optimize_graph: GraphWrapper | None = None
        self.search_space = search_space
        self.executor: SlimGraphExecutor | None = None
        self.eval_results: dict[str, list[float]] = {}
        self.skip_training = False

    def put(self, key: str, value: Any) -> None:
        """Keeps a value for strategies."""
        self.k_v[key] = value

    def get(self, key: str) -> Any:
        """A value that `put` has kept, or None."""
        return self.k_v.get(key)

    def eval_converged(self, metric_name: str, delta: float = 0.001) -> bool:
        """Whether the last epoch changed a metric by less than ``delta``."""
        values = self.eval_results.get(metric_name, [])
        return len(values) > 1 and abs(values[-1] - values[-2]) < delta

    def run_eval_graph(self, sampled_rate: float | None = None, cached_id: int = 0) -> tuple[np.ndarray, list[str]]:
        """Evaluates the eval graph.

        Args:
          sampled_rate: which part of the batches is used; the same ones for the same ``cached_id``.

        Returns:
          The means of its outputs over batches, and their names.
        """
        assert self.eval_graph is not None and self.eval_reader is not None
        executor = self.executor or SlimGraphExecutor(self.place)
        graph, random = self.eval_graph, np.random.RandomState(cached_id)
        if graph.compiled_graph is None:
            graph.compile(for_parallel=False, for_test=True)
        results = []
        for batch in self.eval_reader():
            if sampled_rate is None or random.uniform() < sampled_rate or not results:
                results.append([float(np.mean(value)) for value in executor.run(graph, self.scope, data=batch)])
        if not results:
            raise ValueError("the eval_reader has no batches")
        means, names = np.mean(results, axis=0), list(graph.out_nodes)
        _log.info("evaluated", epoch=self.epoch_id, **dict(zip(names, means.tolist(), strict=True)))
        return means, names
