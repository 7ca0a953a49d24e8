"""Compressor: trains a model while strategies make it smaller."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paddle.fluid.contrib.slim.core.config import ConfigFactory
from paddle.fluid.contrib.slim.core.context import Context
from paddle.fluid.contrib.slim.core.strategy import Strategy
from paddle.fluid.contrib.slim.graph import GraphWrapper, SlimGraphExecutor
from refluid.files.writing import atomic_write
from refluid.ir import Program
from refluid.log import Log
from refluid.scope import Scope, scope_guard

__all__ = ["Compressor", "Context"]
_log = Log("compression")


class Compressor:
    """Trains a model, and lets strategies prune, distil or quantise it between epochs.

    Args:
      place: where the model runs.
      scope: holds its parameters, which the startup program has initialized or which were loaded.
      train_program: the model with its loss, without an optimizer; or with one, if ``train_optimizer`` is None.
      train_reader: gives batches of samples, in every epoch anew.
      train_feed_list, train_fetch_list: pairs (name, variable name) of inputs and outputs; one output is called
        ``loss``.
      eval_program, eval_reader, eval_feed_list, eval_fetch_list: the same for evaluation, after every epoch.
      teacher_programs: programs that students learn from.
      checkpoint_path: where checkpoints are written and, if there is one, training goes on; overrides the config.
      train_optimizer, distiller_optimizer: what trains the model, and what trains it under distillation.
      search_space: for architecture search, which is not supported.
      eval_func: functions by metric name, called with the eval program and the scope, that evaluate instead.
      save_eval_model: whether checkpoints contain the eval program as an inference model.
      prune_infer_model: ([inputs], [outputs]) of the inference model in checkpoints, by variable name; without it, it
        has the inputs and outputs of the eval program.
      log_period: after how many batches losses are logged.
    """

    def __init__(
        self,
        place: Any,
        scope: Scope,
        train_program: Program,
        train_reader: Callable[[], Any] | None = None,
        train_feed_list: Any = None,
        train_fetch_list: Any = None,
        eval_program: Program | None = None,
        eval_reader: Callable[[], Any] | None = None,
        eval_feed_list: Any = None,
        eval_fetch_list: Any = None,
        teacher_programs: Sequence[Program] = [],
        checkpoint_path: str | None = None,
        train_optimizer: Any = None,
        distiller_optimizer: Any = None,
        search_space: Any = None,
        eval_func: dict[str, Callable[[Program, Scope], float]] | None = None,
        save_eval_model: bool = True,
        prune_infer_model: tuple[Sequence[str], Sequence[str]] | None = None,
        log_period: int = 20,
    ):
        if train_feed_list is None and train_reader is not None:
            raise ValueError("Compressor needs train_feed_list: the variables that train_reader's samples are fed to")
        self.strategies: list[Strategy] = []
        self.epoch = 0
        self.place, self.scope = place, scope
        self.train_graph = GraphWrapper(train_program, train_feed_list, train_fetch_list)
        self.eval_graph = None
        if eval_program is not None:
            self.eval_graph = GraphWrapper(eval_program, eval_feed_list, eval_fetch_list)
        self.train_reader, self.eval_reader, self.eval_func = train_reader, eval_reader, eval_func
        self.save_eval_model, self.prune_infer_model = save_eval_model, prune_infer_model
        self.teacher_graphs = [GraphWrapper(program) for program in teacher_programs]
        self.checkpoint_path, self.checkpoints = checkpoint_path, checkpoint_path is not None
        self.train_optimizer, self.distiller_optimizer = train_optimizer, distiller_optimizer
        self.search_space, self.log_period = search_space, log_period

    def _add_strategy(self, strategy: Strategy) -> None:
        """Adds a strategy; training lasts at least until it ends."""
        self.strategies.append(strategy)
        self.epoch = max(strategy.end_epoch, self.epoch)

    def config(self, config_file: str) -> None:
        """Reads strategies, the number of epochs and the path of checkpoints from a YAML file."""
        factory = ConfigFactory(config_file)
        self.epoch = factory.compressor.get("epoch", 0)
        self.checkpoint_path = self.checkpoint_path or factory.compressor.get("checkpoint_path")
        for name in factory.compressor["strategies"]:
            self._add_strategy(factory.instance(name))

    def run(self) -> GraphWrapper:
        """Trains, evaluates and compresses; returns the eval graph, or the train graph if there is none."""
        context = Context(
            place=self.place,
            scope=self.scope,
            train_graph=self.train_graph,
            train_reader=self.train_reader,
            eval_graph=self.eval_graph,
            eval_reader=self.eval_reader,
            teacher_graphs=self.teacher_graphs,
            train_optimizer=self.train_optimizer,
            distiller_optimizer=self.distiller_optimizer,
            search_space=self.search_space,
        )
        context.epoch, context.executor = self.epoch, SlimGraphExecutor(self.place)
        with scope_guard(self.scope):
            self._load_checkpoint(context)
            for strategy in self.strategies:
                strategy.on_compression_begin(context)
            while context.epoch_id < context.epoch:
                self._run_epoch(context)
                context.epoch_id += 1
            for strategy in self.strategies:
                strategy.on_compression_end(context)
        return self.train_graph if context.eval_graph is None else context.eval_graph

    def _run_epoch(self, context: Context) -> None:
        for strategy in self.strategies:
            strategy.on_epoch_begin(context)
        if context.optimize_graph is None:
            context.optimize_graph = self._graph_to_train(context)
        self._train_one_epoch(context)
        if self.eval_func is not None or (context.eval_graph is not None and self.eval_reader is not None):
            self._eval(context)
        self._save_checkpoint(context)
        for strategy in self.strategies:
            strategy.on_epoch_end(context)

    def _graph_to_train(self, context: Context) -> GraphWrapper:
        assert context.train_graph is not None
        if context.train_optimizer is None:
            return context.train_graph
        return context.train_graph.get_optimize_graph(context.train_optimizer, context.place, context.scope)

    def _train_one_epoch(self, context: Context) -> None:
        if context.skip_training:
            return
        graph, executor = context.optimize_graph, context.executor
        assert graph is not None and executor is not None
        if context.train_reader is None:
            raise ValueError("Compressor needs train_reader: batches of samples to train on")
        if graph.compiled_graph is None:
            graph.compile()
        for number, batch in enumerate(context.train_reader()):
            context.batch_id = number
            for strategy in self.strategies:
                strategy.on_batch_begin(context)
            results = [float(np.mean(value)) for value in executor.run(graph, context.scope, data=batch)]
            if context.batch_id % self.log_period == 0:
                fields = dict(zip(graph.out_nodes, results, strict=True))
                _log.info("trained", epoch=context.epoch_id, batch=context.batch_id, **fields)
            for strategy in self.strategies:
                strategy.on_batch_end(context)

    def _eval(self, context: Context) -> None:
        if self.eval_func is not None:
            assert context.eval_graph is not None
            found = {name: f(context.eval_graph.program, context.scope) for name, f in self.eval_func.items()}
        else:
            values, names = context.run_eval_graph()
            found = dict(zip(names, values.tolist(), strict=True))
        for name, value in found.items():
            context.eval_results.setdefault(name, []).append(float(value))

    # Checkpoints: one folder for each epoch; what marks it as complete is written last.

    def _save_checkpoint(self, context: Context) -> None:
        if self.checkpoint_path is None:
            return
        folder = os.path.join(self.checkpoint_path, str(context.epoch_id))
        assert context.optimize_graph is not None and context.executor is not None
        context.optimize_graph.save_persistables(os.path.join(folder, "model"), context.executor)
        if self.save_eval_model and context.eval_graph is not None:
            graph = context.eval_graph
            in_out = self.prune_infer_model or (list(graph.in_nodes.values()), list(graph.out_nodes.values()))
            graph.save_infer_model(os.path.join(folder, "eval_model"), context.executor, in_out)
        with atomic_write(os.path.join(folder, "context")) as file:
            file.write(json.dumps({"epoch_id": context.epoch_id, "eval_results": context.eval_results}).encode())
        _log.info("saved a checkpoint", path=folder)

    def _load_checkpoint(self, context: Context) -> None:
        """Goes on after the last complete checkpoint: shapes follow its files, strategies repeat their changes."""
        path = self.checkpoint_path
        epochs = [int(name) for name in os.listdir(path) if name.isdigit()] if path and os.path.isdir(path) else []
        complete = [epoch for epoch in epochs if os.path.exists(os.path.join(path or "", str(epoch), "context"))]
        if not complete:
            return
        folder = os.path.join(path or "", str(max(complete)))
        with open(os.path.join(folder, "context"), encoding="utf-8") as file:
            saved = json.load(file)
        context.epoch_id, context.eval_results = saved["epoch_id"] + 1, saved["eval_results"]
        model = os.path.join(folder, "model")
        for graph in (context.train_graph, context.eval_graph):
            if graph is not None:
                graph.load_persistables(model, context.executor)
                graph.update_groups_of_conv()
                graph.infer_shape()
        for strategy in self.strategies:
            strategy.restore_from_checkpoint(context)
        if context.optimize_graph is None:
            context.optimize_graph = self._graph_to_train(context)
        context.optimize_graph.load_persistables(model, context.executor)
        _log.info("goes on from a checkpoint", path=folder, epoch=context.epoch_id)
