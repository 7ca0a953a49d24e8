"""Pruning as a part of compression: how much of which parameters, and when."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paddle.fluid.contrib.slim.core.strategy import Strategy
from paddle.fluid.contrib.slim.graph import GraphWrapper, SlimGraphExecutor
from refluid.compression.channels import Removals, optimizer_state, spread
from refluid.compression.importance import ratios_by_sensitivity, uniform_ratio
from refluid.files.writing import atomic_write
from refluid.log import Log

__all__ = ["PruneStrategy", "SensitivePruneStrategy", "UniformPruneStrategy"]
_log = Log("compression")


class PruneStrategy(Strategy):
    """What strategies of pruning have in common.

    Args:
      pruner: says which channels of a parameter matter least.
      start_epoch, end_epoch: when pruning happens.
      target_ratio: which part of the operations (``flops``) is removed.
      metric_name: an output of the eval program.
      pruned_params: a regular expression for the names of the parameters to prune.
    """

    def __init__(
        self,
        pruner: Any = None,
        start_epoch: int = 0,
        end_epoch: int = 0,
        target_ratio: float = 0.5,
        metric_name: str | None = None,
        pruned_params: str = "conv.*_weights",
    ):
        super().__init__(start_epoch, end_epoch)
        self.pruner, self.target_ratio = pruner, target_ratio
        self.metric_name, self.pruned_params = metric_name, pruned_params

    def _names(self, graph: GraphWrapper) -> list[str]:
        """The parameters to prune."""
        names = [p.name() for p in graph.all_parameters() if re.match(self.pruned_params, p.name())]
        if not names:
            raise ValueError(f"pruned_params is {self.pruned_params!r}; no parameter of the program has such a name")
        return names

    def _removals(self, graph: GraphWrapper, scope: Any, ratios: Mapping[str, float]) -> Removals:
        """What goes with the least important channels of these parameters."""
        found = Removals()
        for name, ratio in ratios.items():
            held = scope.find_var(name)
            if held is None or held.value is None:
                raise ValueError(f"the scope has no value of {name}; run the startup program or load the model first")
            value = found.cut(name, np.array(held.get_tensor()), keep=0)  # what is left of its inputs
            channels = self.pruner.cal_pruned_idx(name, value, ratio)
            if 0 < len(channels) < graph.var(name).shape()[0]:
                spread(graph.program, name, channels.tolist(), found)
        return found

    def _removed(self, graph: GraphWrapper, scope: Any, ratios: Mapping[str, float]) -> float:
        """Which part of the operations of a graph these ratios remove."""
        smaller = graph.clone()
        self._removals(graph, scope, ratios).apply(smaller.program)
        return 1 - smaller.flops() / graph.flops()

    def _prune(self, context: Any, ratios: Mapping[str, float]) -> None:
        """Prunes the scope and all graphs of a compression."""
        removals = self._removals(context.eval_graph or context.train_graph, context.scope, ratios)
        graphs = [context.train_graph, context.optimize_graph, context.eval_graph]
        programs = {id(graph.program): graph for graph in graphs if graph is not None}
        _cut_values(context.scope, removals, [graph.program for graph in programs.values()])
        for graph in programs.values():
            removals.apply(graph.program)
            graph.compiled_graph = None
        context.executor = SlimGraphExecutor(context.place)  # to which it is no surprise that programs are compiled
        _log.info("pruned", parameters=len(removals.names()), flops=(context.eval_graph or context.train_graph).flops())


class UniformPruneStrategy(PruneStrategy):
    """Prunes the same part of every parameter, so that ``target_ratio`` of the operations go."""

    def restore_from_checkpoint(self, context: Any) -> None:
        """Nothing: shapes follow those of the checkpoint's files."""

    def on_epoch_begin(self, context: Any) -> None:
        if context.epoch_id == self.start_epoch:
            self._prune(context, self._get_best_ratios(context))

    def _get_best_ratios(self, context: Any) -> dict[str, float]:
        graph = context.eval_graph or context.train_graph
        names = self._names(graph)
        ratio = uniform_ratio(
            lambda ratio: self._removed(graph, context.scope, dict.fromkeys(names, ratio)), self.target_ratio
        )
        return dict.fromkeys(names, ratio)


class SensitivePruneStrategy(PruneStrategy):
    """Prunes parameters by how much accuracy each costs, so that ``target_ratio`` of the operations go.

    Args:
      delta_rate: the ratios that are tried for each parameter are its multiples.
      sensitivities_file: where the results are kept; what it has already is not measured again.
      sensitivities: the results, if they are known: parameter -> ``pruned_percent`` and ``loss``.
      num_steps: in how many epochs the model is pruned, each time by the same part of what is left.
      eval_rate: which part of the eval batches is used to measure.
    """

    def __init__(
        self,
        pruner: Any = None,
        start_epoch: int = 0,
        end_epoch: int = 0,
        delta_rate: float = 0.20,
        target_ratio: float = 0.5,
        metric_name: str = "top1_acc",
        pruned_params: str = "conv.*_weights",
        sensitivities_file: str = "./sensitivities.data",
        sensitivities: Mapping[str, Any] = {},
        num_steps: int = 1,
        eval_rate: float | None = None,
    ):
        super().__init__(pruner, start_epoch, end_epoch, target_ratio, metric_name, pruned_params)
        self.delta_rate, self.num_steps, self.eval_rate = delta_rate, num_steps, eval_rate
        self.sensitivities_file = sensitivities_file
        self.sensitivities: dict[str, Any] = {name: dict(found) for name, found in sensitivities.items()}
        self.pruning_step = 1 - (1 - target_ratio) ** (1 / num_steps)

    def on_epoch_begin(self, context: Any) -> None:
        if self.start_epoch <= context.epoch_id < self.start_epoch + self.num_steps:
            sensitivities = self._compute_sensitivities(context)
            self._prune(context, self._get_best_ratios(context, sensitivities, self.pruning_step))
            self.sensitivities = {}  # what is left is another model

    def _compute_sensitivities(self, context: Any) -> dict[str, Any]:
        """What pruning each parameter alone costs."""
        graph = context.eval_graph
        if graph is None:
            raise ValueError("SensitivePruneStrategy needs the eval_program and eval_reader of Compressor")
        first = context.epoch_id == self.start_epoch
        if first and not self.sensitivities and os.path.exists(self.sensitivities_file):
            with open(self.sensitivities_file, encoding="utf-8") as file:
                self.sensitivities = json.load(file)
        names = self._names(graph)
        ratios = np.arange(self.delta_rate, 1, self.delta_rate).tolist()
        best = None
        for name in names:
            found = self.sensitivities.setdefault(name, {"pruned_percent": [], "loss": []})
            for ratio in [ratio for ratio in ratios if ratio not in found["pruned_percent"]]:
                best = self._metric(context, context.eval_graph) if best is None else best
                found["pruned_percent"].append(ratio)
                found["loss"].append(best - self._metric_without(context, name, ratio))
                with atomic_write(self.sensitivities_file) as file:
                    file.write(json.dumps(self.sensitivities).encode())
        return {name: self.sensitivities[name] for name in names}

    def _metric(self, context: Any, graph: GraphWrapper) -> float:
        kept, context.eval_graph = context.eval_graph, graph
        try:
            values, names = context.run_eval_graph(self.eval_rate, cached_id=context.epoch_id)
        finally:
            context.eval_graph = kept
        if self.metric_name not in names:
            raise ValueError(f"metric_name is {self.metric_name!r}; the eval program has {', '.join(names)}")
        return float(values[names.index(self.metric_name)])

    def _metric_without(self, context: Any, name: str, ratio: float) -> float:
        """The metric of the model without a part of a parameter, which is zero meanwhile."""
        graph = context.eval_graph
        removals = self._removals(graph, context.scope, {name: ratio})
        backup = _cut_values(context.scope, removals, [], lazy=True)
        try:
            return self._metric(context, graph)
        finally:
            for each, value in backup.items():
                context.scope.find_var(each).get_tensor().set(value)

    def _get_best_ratios(self, context: Any, sensitivities: Mapping[str, Any], target_ratio: float) -> dict[str, float]:
        graph = context.eval_graph
        return ratios_by_sensitivity(
            sensitivities, lambda ratios: self._removed(graph, context.scope, ratios), target_ratio
        )


def _cut_values(
    scope: Any, removals: Removals, programs: Sequence[Any], *, lazy: bool = False
) -> dict[str, np.ndarray]:
    """Cuts parameters and what optimizers keep for them; returns the old values."""
    followers = [optimizer_state(program.global_block()) for program in programs]
    backup: dict[str, np.ndarray] = {}
    for name in removals.names():
        shape = np.array(scope.find_var(name).get_tensor()).shape
        for each in dict.fromkeys([name, *(kept for state in followers for kept in state.get(name, ()))]):
            tensor = scope.find_var(each).get_tensor()
            value = np.array(tensor)
            if value.shape == shape:
                backup[each] = value
                tensor.set(removals.cut(name, value, lazy=lazy))
    return backup
