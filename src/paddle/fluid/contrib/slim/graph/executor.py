"""Runs the graphs of slim's strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from paddle.fluid.data_feeder import DataFeeder
from refluid.executor import Executor
from refluid.scope import Scope

__all__ = ["SlimGraphExecutor"]


class SlimGraphExecutor:
    """Feeds samples to a graph, and fetches its outputs."""

    def __init__(self, place: Any):
        self.exe = Executor(place)
        self.place = place

    def run(self, graph: GraphWrapper, scope: Scope, data: Sequence[Any] | None = None) -> list[np.ndarray]:
        """Runs the graph once.

        Args:
          data: samples, each a tuple of values in the order of ``graph.in_nodes``; None if the program reads them.

        Returns:
          The values of ``graph.out_nodes``, in order.
        """
        program = graph.compiled_graph or graph.program
        feed = None
        if data is not None:
            variables = [graph.program.global_block().var(name) for name in graph.in_nodes.values()]
            feed = DataFeeder(feed_list=variables, place=self.place, program=graph.program).feed(data)
        fetches = list(graph.out_nodes.values())
        return self.exe.run(program, feed=feed, fetch_list=fetches, scope=scope)
