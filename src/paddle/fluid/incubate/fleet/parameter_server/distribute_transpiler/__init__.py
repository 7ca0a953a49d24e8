"""Fleet with parameter servers: DistributeTranspiler creates the programs, and Fleet gives each process its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import refluid
from paddle.fluid import io
from paddle.fluid.communicator import Communicator
from paddle.fluid.compiler import CompiledProgram
from paddle.fluid.executor import Executor
from paddle.fluid.framework import Program, default_startup_program
from paddle.fluid.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet
from paddle.fluid.incubate.fleet.base.mode import Mode
from paddle.fluid.incubate.fleet.base.mpi_role_maker import MPIRoleMaker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import distributed_strategy
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import *  # noqa: F403
from paddle.fluid.incubate.fleet.parameter_server.mode import DistributedMode
from paddle.fluid.optimizer import Optimizer
from paddle.fluid.transpiler.distribute_transpiler import (
    DistributeTranspiler,
    DistributeTranspilerConfig,
    ServerRuntimeConfig,
)
from refluid.ir.modes import Mode as TrainingMode
from refluid.transpiler.config import choose_mode

__all__ = ["DistributeTranspilerConfig", "DistributedMode", "DistributedTranspiler", "ServerRuntimeConfig"]
__all__ += ["TranspilerOptimizer", "fleet", *distributed_strategy.__all__]


class DistributedTranspiler(Fleet):
    """Fleet for jobs with parameter servers and workers."""

    def __init__(self) -> None:
        super().__init__(Mode.TRANSPILER)
        self._transpiler: DistributeTranspiler | None = None
        self._config: DistributeTranspilerConfig | None = None
        self._strategy: distributed_strategy.DistributedStrategy | None = None
        self._origin_program: Program | None = None
        self._communicator: Communicator | None = None

    # Workers

    def init_worker(self) -> None:
        """Prepares a worker. The startup program waits for the servers."""
        self._check_role("init_worker", "worker")
        flags = self._strategy.get_trainer_runtime_config().get_changed_flags() if self._strategy else {}
        self._communicator = Communicator(self._program("init_worker"), self._mode_of_job(), envs=flags)
        self._communicator.start()

    def stop_worker(self) -> None:
        """Sends what is queued and leaves the job."""
        self._check_role("stop_worker", "worker")
        self._program("stop_worker")
        if self._communicator is not None:
            self._communicator.stop()
            self._communicator = None
        # A worker that had nothing to train on has not joined yet; servers wait for its Leave call all the same.
        self._session().leave()

    def barrier_worker(self) -> None:
        """Waits until all workers have reached the barrier: over MPI if it is in use, else on the servers."""
        if isinstance(self.role_maker, MPIRoleMaker):
            self.role_maker.barrier_worker()
        else:
            self._check_role("barrier_worker", "worker")
            self._program("barrier_worker")
            self._session().barrier()

    def _session(self) -> Any:
        """This worker's session with the servers; gRPC is imported with it."""
        from refluid.runtime.trainer.session import Job, session_of

        endpoints = tuple(self.role_maker.get_pserver_endpoints())
        return session_of(Job(self.worker_index(), self.worker_num(), endpoints, self._mode_of_job()))

    # Servers

    def init_server(self, model_dir: str | None = None) -> None:
        """Runs the startup program, and loads a model saved by `save_persistables`."""
        self._check_role("init_server", "server")
        main = self._program("init_server")
        assert self._executor is not None and self.startup_program is not None
        self._executor.run(self.startup_program)
        if model_dir is not None:
            io.load_persistables(self._executor, model_dir, main)

    def run_server(self) -> None:
        """Serves until all workers have stopped."""
        self._check_role("run_server", "server")
        main = self._program("run_server")
        assert self._executor is not None
        self._executor.run(main)

    # Programs

    def distributed_optimizer(self, optimizer: Optimizer, strategy: Any = None) -> TranspilerOptimizer:
        """Returns an optimizer whose `minimize` creates the programs of this process.

        Args:
            optimizer: the optimizer to wrap.
            strategy: a `DistributeTranspilerConfig` or a strategy from `StrategyFactory`; defaults to sync training.
        """
        self._optimizer = made = TranspilerOptimizer(optimizer, strategy, self)
        return made

    def _transpile(self, strategy: Any, main: Program, startup: Program) -> None:
        roles = self.role_maker
        self._config, self._strategy = _config_of(strategy)
        self._origin_program = main.clone()
        self._transpiler = DistributeTranspiler(self._config)
        self._transpiler.transpile(
            trainer_id=roles.worker_index() if roles.is_worker() else 0,
            program=main,
            pservers=",".join(roles.get_pserver_endpoints()),
            trainers=roles.worker_num(),
            sync_mode=self._config.sync_mode,
            startup_program=startup,
        )
        if roles.is_worker():
            # Under MPI, the server of a machine may start after its worker.
            waits = self._config.wait_port and not isinstance(roles, MPIRoleMaker)
            self.main_program, self.startup_program = self._transpiler.get_trainer_program(waits), startup
        else:
            endpoint = roles.get_pserver_endpoints()[roles.server_index()]
            self.main_program, self.startup_program = self._transpiler.get_pserver_programs(endpoint)

    def _mode_of_job(self) -> TrainingMode:
        if self._config is None:
            raise ValueError(
                "fleet: the servers of this job are not known yet; call "
                "fleet.distributed_optimizer(...).minimize(loss) before workers meet"
            )
        return choose_mode(self._config)

    def _program(self, caller: str) -> Program:
        if self.main_program is None:
            raise ValueError(
                f"fleet.{caller}: no program yet; call fleet.distributed_optimizer(...).minimize(loss) first"
            )
        return self.main_program

    def _check_role(self, caller: str, wanted: str) -> None:
        if not getattr(self.role_maker, f"is_{wanted}")():
            raise RuntimeError(
                f"fleet.{caller} must be called on a {wanted}, which this process is not: check fleet.is_{wanted}()"
            )

    # Saving

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: Sequence[str],
        target_vars: Sequence[Any],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> list[str]:
        """Saves the model that predicts ``target_vars``, with the servers' parameters. Call it on one worker only."""
        _check_saving("save_inference_model", executor, main_program)
        self._program("save_inference_model")
        program = self._origin_program if main_program is None else main_program
        return io.save_inference_model(
            dirname, feeded_var_names, target_vars, executor, program, export_for_deployment=export_for_deployment
        )

    def save_persistables(self, executor: Executor, dirname: str, main_program: Program | None = None) -> Any:
        """Saves the parameters and optimizer state of all servers as one set of files. Call it on one worker only."""
        _check_saving("save_persistables", executor, main_program)
        program = self._program("save_persistables") if main_program is None else main_program
        return io.save_persistables(executor, dirname, program)

    # Tables

    def shrink_sparse_table(self) -> None:
        """Has servers give up rows of tables by their `refluid.table_options`. Call it on one worker only.

        The name is that of pslib's fleet.
        """
        self._check_role("shrink_sparse_table", "worker")
        refluid.shrink_tables()


class TranspilerOptimizer(DistributedOptimizer):
    """The optimizer that `fleet.distributed_optimizer` returns."""

    def __init__(self, optimizer: Optimizer, strategy: Any = None, fleet: DistributedTranspiler | None = None) -> None:
        super().__init__(optimizer, strategy)
        _config_of(strategy)
        self._fleet = fleet

    def minimize(  # pyright: ignore[reportIncompatibleMethodOverride] - as in Fluid
        self,
        loss: Any,
        scopes: Any = None,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Minimizes ``loss``, then creates ``fleet.main_program`` and ``fleet.startup_program`` of this process."""
        for name, value in (("loss", loss), ("startup_program", startup_program)):
            if isinstance(value, list | tuple):
                raise TypeError(f"minimize expects a single {name}, not a list")
        owner = fleet if self._fleet is None else self._fleet
        owner.role_maker  # noqa: B018 - init must have been called
        result = self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        startup = default_startup_program() if startup_program is None else startup_program
        owner._transpile(self._strategy, loss.block.program, startup)
        return result


def _config_of(strategy: Any) -> tuple[DistributeTranspilerConfig, distributed_strategy.DistributedStrategy | None]:
    """Returns the configuration of a strategy, and the strategy for its flags; a plain configuration has no flags."""
    if strategy is None:
        return DistributeTranspilerConfig(), None
    if isinstance(strategy, DistributeTranspilerConfig):
        return strategy, None
    if isinstance(strategy, distributed_strategy.DistributedStrategy):
        return strategy.get_program_config(), strategy
    raise TypeError(
        "strategy must be a DistributeTranspilerConfig, or a SyncStrategy, HalfAsyncStrategy, AsyncStrategy or "
        f"GeoStrategy (see StrategyFactory), not {type(strategy).__name__}"
    )


def _check_saving(name: str, executor: Any, program: Any) -> None:
    if not isinstance(executor, Executor):
        raise TypeError(f"fleet.{name}: executor must be a fluid.Executor, not {type(executor).__name__}")
    if isinstance(program, CompiledProgram):
        raise TypeError(f"fleet.{name}: main_program must be a Program, not a CompiledProgram")


fleet = DistributedTranspiler()
