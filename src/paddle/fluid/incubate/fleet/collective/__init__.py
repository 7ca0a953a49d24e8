"""Fleet without servers: all processes hold all parameters, and average their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.distributed.fs_wrapper import FS
from paddle.fluid import io
from paddle.fluid.compiler import CompiledProgram
from paddle.fluid.executor import Executor
from paddle.fluid.framework import Program, default_main_program, default_startup_program
from paddle.fluid.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet
from paddle.fluid.incubate.fleet.base.mode import Mode
from paddle.fluid.incubate.fleet.collective.checkpoints import Checkpoints, TrainStatus
from paddle.fluid.incubate.fleet.collective.strategy import DistFCConfig, DistributedStrategy, LambConfig
from paddle.fluid.optimizer import Optimizer, RecomputeOptimizer
from paddle.fluid.transpiler.distribute_transpiler import DistributeTranspiler, DistributeTranspilerConfig
from refluid.transpiler.collective import LocalSGD
from refluid.transpiler.gradient_merge import MergeGradients

__all__ = [
    "Collective",
    "CollectiveOpBasedOptimizer",
    "CollectiveOptimizer",
    "DistFCConfig",
    "DistributedStrategy",
    "LambConfig",
    "TrainStatus",
    "fleet",
]


class Collective(Fleet):
    """Fleet for jobs of workers only."""

    def __init__(self) -> None:
        super().__init__(Mode.COLLECTIVE)
        self.main_program: Any = None  # a CompiledProgram in mode "nccl2"
        self._origin_program: Program | None = None
        self._local_ip = 0

    def init_worker(self) -> None:
        """Does nothing: the startup program brings workers together."""

    def run_worker(self, main_programs: Any = None, scopes: Any = None) -> None:
        """Does nothing: call ``exe.run(fleet.main_program)``."""

    def init_server(self, model_dir: str | None = None) -> None:
        """Does nothing: there are no servers."""

    def run_server(self) -> None:
        """Does nothing: there are no servers."""

    def stop_worker(self) -> None:
        """Does nothing: a worker leaves the job when its process ends."""

    def barrier_worker(self) -> None:
        """Waits until all workers have reached the barrier."""
        if self.worker_num() > 1:
            self._group().agree("barrier", [])

    def all_reduce_worker(self, input: Any, output: Any) -> None:
        """Writes the sum of all workers' arrays to ``output``."""
        if self.worker_num() == 1:
            output[...] = input
            return
        from refluid.runtime.collective.arrays import gather

        output[...] = gather(self._group(), input).sum(axis=0)

    def _tell_others(self, text: str) -> list[str]:
        """The texts of all workers, in order."""
        from refluid.runtime.collective.arrays import gather_texts

        return gather_texts(self._group(), text)

    def _group(self) -> Any:
        """The workers, joined: programs do so when they first run."""
        from refluid.runtime import collective

        return collective.join(tuple(self.worker_endpoints()), self.worker_index())

    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> CollectiveOptimizer:
        """Returns an optimizer whose `minimize` creates ``fleet.main_program`` and ``fleet.startup_program``."""
        self._optimizer = made = CollectiveOptimizer(optimizer, strategy)
        made._fleet = self
        return made

    # Saving. Every worker holds all parameters: whoever calls saves, usually worker 0.

    def save_inference_model(  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: Sequence[str] | None = None,
        target_vars: Sequence[Any] | None = None,
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> Any:
        """Saves the model that predicts ``target_vars``."""
        program = self._program_to_save("save_inference_model", executor, main_program)
        return io.save_inference_model(
            dirname,
            feeded_var_names or [],
            target_vars or [],
            executor,
            program,
            export_for_deployment=export_for_deployment,
        )

    def save_persistables(
        self, executor: Executor, dirname: str, main_program: Program | None = None, filename: str | None = None
    ) -> Any:
        """Saves everything needed to resume training."""
        program = self._program_to_save("save_persistables", executor, main_program)
        return io.save_persistables(executor, dirname, program, filename)

    def save_check_point(
        self,
        executor: Executor,
        path: str,
        train_status: TrainStatus,
        main_program: Program | None = None,
        fs: FS | None = None,
        local_cache_path: str = ".cache",
        remain_all_checkpoint: bool = True,
    ) -> None:
        """Saves a numbered checkpoint in ``path``, on worker 0; on other workers it does nothing.

        Args:
          executor: the executor of the worker.
          path: the directory of all checkpoints.
          train_status: the last complete epoch.
          main_program: the program whose variables are saved; by default the one that was minimized.
          fs: the file system of ``path``, see `paddle.distributed.fs_wrapper`; by default the local one.
          local_cache_path: a local directory, for file systems that are not local.
          remain_all_checkpoint: keep older checkpoints; False removes them.
        """
        program = self._program_to_save("save_check_point", executor, main_program)
        if not self.is_first_worker():
            return
        kept = Checkpoints(path, fs, local_cache_path)
        kept.save(executor, program, train_status)
        if not remain_all_checkpoint:
            kept.keep(1)

    def load_check_point(
        self,
        executor: Executor,
        path: str,
        trainer_id: int,
        main_program: Program | None = None,
        fs: FS | None = None,
        local_cache_path: str = ".cache",
        ignore_empty: bool = True,
    ) -> TrainStatus | None:
        """Loads the last checkpoint in ``path`` and returns its status; None if there is none.

        Args:
          trainer_id: keeps the workers of a machine apart in the cache.
          ignore_empty: False raises an error if there is no checkpoint.
        The others are those of `save_check_point`.
        """
        program = self._program_to_save("load_check_point", executor, main_program)
        found = Checkpoints(path, fs, local_cache_path).load(executor, program, str(trainer_id))
        if found is None and not ignore_empty:
            raise AssertionError(f"there is no checkpoint in {path}")
        return found

    def clean_redundant_check_points(self, root_path: str, fs: FS | None = None, checkpoint_num: int = 1) -> None:
        """Removes all but the last ``checkpoint_num`` checkpoints."""
        Checkpoints(root_path, fs, "").keep(checkpoint_num)

    save_checkpoint, load_checkpoint = save_check_point, load_check_point  # their names in later versions
    clean_redundant_checkpoints = clean_redundant_check_points

    def _program_to_save(self, caller: str, executor: Any, program: Any) -> Program:
        if not isinstance(executor, Executor):
            raise AssertionError(f"fleet.{caller}: executor must be a fluid.Executor, not {type(executor).__name__}")
        found = (self._origin_program or default_main_program()) if program is None else program
        if not isinstance(found, Program):
            raise AssertionError(f"fleet.{caller}: main_program must be a Program, not {type(found).__name__}")
        return found


fleet = Collective()


class CollectiveOpBasedOptimizer(DistributedOptimizer):
    """Base class of optimizers for collective jobs."""

    _strategy: Any  # a DistributedStrategy

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        strategy = DistributedStrategy() if strategy is None else strategy
        if not isinstance(strategy, DistributedStrategy):
            raise TypeError(
                "strategy must be a paddle.fluid.incubate.fleet.collective.DistributedStrategy, "
                f"not {type(strategy).__name__}"
            )
        if not isinstance(optimizer, Optimizer) and not callable(getattr(optimizer, "minimize", None)):
            raise ValueError(
                f"distributed_optimizer expects a fluid.optimizer.Optimizer, not {type(optimizer).__name__}"
            )
        self._optimizer, self._strategy = optimizer, strategy

    def minimize(self, *args: Any, **options: Any) -> Any:
        """See `CollectiveOptimizer`."""
        raise NotImplementedError(f"{type(self).__name__} does not create programs; use CollectiveOptimizer")


class CollectiveOptimizer(CollectiveOpBasedOptimizer):
    """The optimizer that `fleet.distributed_optimizer` returns.

    Args:
      optimizer: the optimizer to wrap.
      strategy: a `DistributedStrategy`; by default data parallelism over all workers.
    """

    _fleet: Collective | None = None

    def minimize(
        self,
        loss: Any,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Minimizes ``loss``, then creates ``fleet.main_program`` and ``fleet.startup_program``."""
        for name, value in (("loss", loss), ("startup_program", startup_program)):
            if isinstance(value, list | tuple):
                raise TypeError(f"minimize expects a single {name}, not a list")
        owner, strategy = self._fleet or fleet, self._strategy
        owner.role_maker  # noqa: B018 - init must have been called
        strategy._check()
        main = loss.block.program
        startup = default_startup_program() if startup_program is None else startup_program
        result = self._wrapped().minimize(
            loss, startup_program=startup, parameter_list=parameter_list, no_grad_set=no_grad_set
        )
        MergeGradients(strategy.gradient_merge_steps).apply(main, startup)
        owner._origin_program, owner.startup_program = main, startup
        self._transpile(owner, main, startup)
        owner.main_program = self._compile(owner, main, loss) if strategy.mode == "nccl2" else main
        return result

    def _wrapped(self) -> Any:
        strategy, optimizer = self._strategy, self._optimizer
        if strategy.forward_recompute:
            optimizer = RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints(strategy.recompute_checkpoints)
        if strategy.use_amp:
            from paddle.fluid.contrib.mixed_precision import decorate

            optimizer = decorate(
                optimizer, init_loss_scaling=float(strategy.amp_loss_scaling), use_dynamic_loss_scaling=True
            )
        return optimizer

    def _transpile(self, owner: Collective, main: Program, startup: Program) -> None:
        strategy, endpoints, rank = self._strategy, list(owner.worker_endpoints()), owner.worker_index()
        if strategy.mode != "nccl2" and len(endpoints) == 1:
            return  # nobody to communicate with
        if strategy.collective_mode == "local_sgd" and strategy.mode == "collective":
            averaging = LocalSGD(strategy.nccl_comm_num, strategy.local_sgd_frequency)
            averaging.transpile(startup, main, rank, endpoints, endpoints[rank], True)
            return
        config = DistributeTranspilerConfig()
        for name in ("mode", "collective_mode", "nccl_comm_num", "use_hierarchical_allreduce"):
            setattr(config, name, getattr(strategy, name))
        config.hierarchical_allreduce_inter_nranks = strategy.hierarchical_allreduce_inter_nranks
        DistributeTranspiler(config).transpile(
            rank,
            program=main,
            startup_program=startup,
            trainers=",".join(endpoints),
            current_endpoint=endpoints[rank],
        )

    def _compile(self, owner: Collective, main: Program, loss: Any) -> CompiledProgram:
        strategy = self._strategy
        strategy.num_trainers, strategy.trainer_id = owner.worker_num(), owner.worker_index()
        strategy.trainers_endpoints = list(owner.worker_endpoints())
        return CompiledProgram(main).with_data_parallel(
            loss_name=loss.name, build_strategy=strategy, exec_strategy=strategy.exec_strategy
        )
