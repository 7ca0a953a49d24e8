"""Fluid 0.14's high-level training: a Trainer owns programs, scope and loop, and reports events to a handler."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from paddle.fluid import io
from paddle.fluid.compiler import CompiledProgram
from paddle.fluid.data_feeder import DataFeeder
from refluid.executor import Executor
from refluid.files import checkpoints
from refluid.files.storage import at
from refluid.ir import Program, Variable, program_guard, unique_name
from refluid.places import CPUPlace, CUDAPlace, Place, is_compiled_with_cuda
from refluid.random_state import program_random_state, restore_program_random_state
from refluid.readers.position import random_state, restore_random_state
from refluid.scope import Scope, scope_guard

__all__ = ["BeginEpochEvent", "BeginStepEvent", "CheckpointConfig", "EndEpochEvent", "EndStepEvent", "Trainer"]


class BeginEpochEvent:
    """Signals the start of an epoch."""

    def __init__(self, epoch_id: int):
        self.epoch = epoch_id


class EndEpochEvent:
    """Signals the end of an epoch."""

    def __init__(self, epoch_id: int):
        self.epoch = epoch_id


class BeginStepEvent:
    """Signals the start of a step; a handler may set ``fetch_metrics`` to False to skip its metrics."""

    def __init__(self, epoch_id: int, step_id: int):
        self.epoch, self.step = epoch_id, step_id
        self.fetch_metrics = True


class EndStepEvent:
    """Signals the end of a step; ``metrics`` are the values of train_func's outputs."""

    def __init__(self, epoch_id: int, step_id: int, metrics: list[Any]):
        self.epoch, self.step, self.metrics = epoch_id, step_id, metrics


class CheckpointConfig:
    """When and where a Trainer saves checkpoints, and how many it keeps.

    Args:
      checkpoint_dir: a directory for checkpoints only; defaults to the current one.
      max_num_checkpoints: the number of checkpoints kept; older ones are removed.
      epoch_interval: save only in epochs whose number is a multiple of this.
      step_interval: save only after steps whose number is a multiple of this.
    """

    def __init__(
        self,
        checkpoint_dir: str | None = None,
        max_num_checkpoints: int = 3,
        epoch_interval: int = 1,
        step_interval: int = 10,
    ):
        counts = {
            "max_num_checkpoints": max_num_checkpoints,
            "epoch_interval": epoch_interval,
            "step_interval": step_interval,
        }
        for name, count in counts.items():
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"CheckpointConfig: {name} must be at least 1, got {count!r}")
        self.checkpoint_dir = os.getcwd() if checkpoint_dir is None else checkpoint_dir
        self.max_num_checkpoints = max_num_checkpoints
        self.epoch_interval, self.step_interval = epoch_interval, step_interval

    def is_due(self, epoch: int, step: int) -> bool:
        """Returns whether a checkpoint is saved after this step."""
        return epoch % self.epoch_interval == 0 and step % self.step_interval == 0


class Trainer:
    """Builds a model from functions and trains it.

    With a checkpoint_config, training resumes from the newest complete checkpoint, if there is one: `train` skips the
    batches of that epoch that have been trained on. Checkpoints are removed when training ends.

    Args:
      train_func: builds the model; returns the loss, or a list of variables that starts with it.
      optimizer_func: returns the optimizer.
      param_path: a directory written by `save_params` to start from.
      place: defaults to a GPU if there is one.
      parallel: run one replica per device.
      checkpoint_config: a CheckpointConfig.
    """

    def __init__(
        self,
        train_func: Callable[[], Any],
        optimizer_func: Callable[[], Any],
        param_path: str | None = None,
        place: Place | None = None,
        parallel: bool = False,
        checkpoint_config: CheckpointConfig | None = None,
    ):
        if checkpoint_config is not None and not isinstance(checkpoint_config, CheckpointConfig):
            raise TypeError(f"checkpoint_config must be a CheckpointConfig, not {type(checkpoint_config).__name__}")
        if "PADDLE_TRAINING_ROLE" in os.environ:
            raise NotImplementedError(
                "fluid.Trainer trains in one process; PADDLE_TRAINING_ROLE is set, so use the executor for a cluster"
            )
        self.place, self.parallel = _place(place), parallel
        self.checkpoint_cfg = checkpoint_config
        self.scope, self.startup_program, self.train_program = Scope(), Program(), Program()
        with program_guard(self.train_program, self.startup_program), unique_name.guard():
            outputs = train_func()
            self.train_func_outputs: list[Variable] = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
            self.test_program = self.train_program.clone(for_test=True)
            optimizer_func().minimize(self.train_func_outputs[0])
        self.exe = Executor(self.place)
        self._stopped = False
        self._resume: dict[str, Any] | None = None
        with self._guards():
            self.exe.run(self.startup_program)
            if param_path and at(param_path).is_dir():
                io.load_persistables(self.exe, param_path, self.train_program)
            elif param_path:  # not an error in Fluid: scripts pass a directory that only their first run creates
                warnings.warn(
                    f"param_path: directory {param_path} does not exist; parameters start fresh", stacklevel=2
                )
        if checkpoint_config is not None:
            self._load_checkpoint(checkpoint_config)

    def train(
        self, num_epochs: int, event_handler: Callable[[Any], None], reader: Callable[[], Any], feed_order: Any = None
    ) -> None:
        """Trains for a number of epochs.

        Args:
          event_handler: called with each event.
          reader: yields batches of samples.
          feed_order: variable names in the order of a sample's fields, or a dict of name to position.
        """
        self._stopped = False
        resume, self._resume = self._resume, None
        feeder = self._feeder(self.train_program, feed_order)
        with self._guards():
            for epoch in range(resume["epoch"] if resume else 0, num_epochs):
                self._train_epoch(epoch, event_handler, reader, feeder, resume)
                resume = None
                if self._stopped:
                    break
        if self.checkpoint_cfg is not None:
            checkpoints.remove_checkpoints(self.checkpoint_cfg.checkpoint_dir)

    def test(self, reader: Callable[[], Any], feed_order: Any = None) -> list[float]:
        """Returns the means of train_func's outputs over a reader's batches."""
        feeder = self._feeder(self.test_program, feed_order)
        names = [output.name for output in self.train_func_outputs]
        with self._guards():
            rows = [self.exe.run(self.test_program, feed=feeder.feed(batch), fetch_list=names) for batch in reader()]
        if not rows:
            raise ValueError("the reader yielded no batch to test on")
        return [float(np.mean([value.ravel()[0] for value in column])) for column in zip(*rows, strict=True)]

    def stop(self) -> None:
        """Stops training after the current step; for event handlers."""
        self._stopped = True

    def save_params(self, param_path: str) -> None:
        """Saves parameters and optimizer state, for the ``param_path`` of a Trainer or an Inferencer."""
        with self._guards():
            io.save_persistables(self.exe, param_path, self.train_program)

    def save_inference_model(
        self, param_path: str, feeded_var_names: Sequence[str], target_var_indexes: Sequence[int]
    ) -> None:
        """Saves an inference model for some outputs of train_func, given by index."""
        targets = [self.train_func_outputs[index] for index in target_var_indexes]
        with self._guards():
            io.save_inference_model(param_path, feeded_var_names, targets, self.exe, self.train_program)

    def _train_epoch(
        self,
        epoch: int,
        handle: Callable[[Any], None],
        reader: Callable[[], Any],
        feeder: DataFeeder,
        resume: dict[str, Any] | None,
    ) -> None:
        handle(BeginEpochEvent(epoch))
        if resume:  # so that the reader shuffles as it did before
            restore_random_state(resume["reader"])
        readers_state = random_state()
        program: Any = self.train_program
        if self.parallel:
            program = CompiledProgram(program).with_data_parallel(loss_name=self.train_func_outputs[0].name)
        names = [output.name for output in self.train_func_outputs]
        for step, batch in enumerate(reader()):
            if resume and step <= resume["step"]:
                continue
            begin = BeginStepEvent(epoch, step)
            handle(begin)
            metrics = self.exe.run(program, feed=feeder.feed(batch), fetch_list=names if begin.fetch_metrics else [])
            self._save_checkpoint(epoch, step, readers_state)
            handle(EndStepEvent(epoch, step, metrics))
            if self._stopped:
                return
        handle(EndEpochEvent(epoch))

    def _save_checkpoint(self, epoch: int, step: int, readers_state: dict[str, Any]) -> None:
        config = self.checkpoint_cfg
        if config is None or not config.is_due(epoch, step):
            return
        program = program_random_state(self.scope, self.train_program)
        progress = {"epoch": epoch, "step": step, "program": program, "reader": readers_state}
        checkpoints.save_checkpoint(
            config.checkpoint_dir, self.scope, self.train_program, progress, config.max_num_checkpoints
        )

    def _load_checkpoint(self, config: CheckpointConfig) -> None:
        found = checkpoints.newest_checkpoint(config.checkpoint_dir)
        if found is not None:
            checkpoints.load_checkpoint(found, self.scope, self.train_program)
            restore_program_random_state(found.progress["program"], self.scope, self.train_program)
            self._resume = found.progress

    def _feeder(self, program: Program, feed_order: Any) -> DataFeeder:
        return DataFeeder(_feed_variables(program, feed_order), self.place, program)

    @contextmanager
    def _guards(self) -> Iterator[None]:
        with program_guard(self.train_program, self.startup_program), scope_guard(self.scope):
            yield


def _place(place: Any) -> Place:
    if place is None:
        return CUDAPlace(0) if is_compiled_with_cuda() else CPUPlace()
    if not isinstance(place, CPUPlace | CUDAPlace):
        raise ValueError(f"place must be a fluid.CPUPlace or a fluid.CUDAPlace, not {type(place).__name__}")
    return place


def _feed_variables(program: Program, feed_order: Any) -> list[Variable]:
    """Returns the variables to feed: all data variables as declared, or in ``feed_order``."""
    block = program.global_block()
    if feed_order is None:
        return [variable for variable in block.vars.values() if variable.is_data]
    if isinstance(feed_order, Mapping):
        positions = sorted(feed_order.values())
        if positions != list(range(len(feed_order))):
            raise ValueError(f"the positions of feed_order must be 0 to {len(feed_order) - 1}, got {positions}")
        feed_order = sorted(feed_order, key=lambda name: feed_order[name])
    if not isinstance(feed_order, list | tuple):
        raise TypeError(f"feed_order must be a list of names or a dict of positions, not {type(feed_order).__name__}")
    return [block.var(name) for name in feed_order]
