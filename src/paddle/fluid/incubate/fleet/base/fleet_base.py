"""The base classes of Fleet: the API that scripts call in every mode."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from paddle.fluid.core import CPUPlace
from paddle.fluid.executor import Executor
from paddle.fluid.framework import Program
from paddle.fluid.incubate.fleet.base.mode import Mode
from paddle.fluid.incubate.fleet.base.role_maker import RoleMakerBase
from paddle.fluid.optimizer import Optimizer

__all__ = ["DistributedOptimizer", "Fleet", "Mode"]


class Fleet(abc.ABC):
    """This process as part of a job. Call `init` first, then `distributed_optimizer`."""

    def __init__(self, mode: int) -> None:
        self._mode = mode
        self._is_initialized = False
        self._optimizer: DistributedOptimizer | None = None
        self._role_maker: RoleMakerBase | None = None
        self._executor: Executor | None = None
        self.main_program: Program | None = None
        self.startup_program: Program | None = None

    def init(self, role_maker: RoleMakerBase | None = None) -> None:
        """Sets the role of this process; the default role maker is MPI's."""
        if role_maker is None:
            from paddle.fluid.incubate.fleet.base.mpi_role_maker import MPISymetricRoleMaker

            role_maker = MPISymetricRoleMaker()
        if not isinstance(role_maker, RoleMakerBase):
            raise TypeError(f"role_maker must be an instance of RoleMakerBase, not {type(role_maker).__name__}")
        role_maker.generate_role()
        self._role_maker = role_maker
        self._executor = Executor(CPUPlace())
        self._is_initialized = True

    @property
    def role_maker(self) -> RoleMakerBase:
        """The role of this process."""
        if self._role_maker is None:
            raise RuntimeError("call fleet.init(role_maker) before using fleet")
        return self._role_maker

    def is_first_worker(self) -> bool:
        """Returns whether this process is worker 0, which saves models."""
        return self.role_maker.is_first_worker()

    def is_worker(self) -> bool:
        """Returns whether this process trains."""
        return self.role_maker.is_worker()

    def is_server(self) -> bool:
        """Returns whether this process holds parameters."""
        return self.role_maker.is_server()

    def worker_index(self) -> int:
        """Returns the index of this worker."""
        return self.role_maker.worker_index()

    def worker_num(self) -> int:
        """Returns the number of workers."""
        return self.role_maker.worker_num()

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        """Returns the addresses of the workers, as a list or comma-separated."""
        return _format_endpoints(self.role_maker.get_trainer_endpoints(), to_string)

    def server_index(self) -> int:
        """Returns the index of this server."""
        return self.role_maker.server_index()

    def server_num(self) -> int:
        """Returns the number of servers."""
        return len(self.role_maker.get_pserver_endpoints())

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """Returns the addresses of the servers, as a list or comma-separated."""
        return _format_endpoints(self.role_maker.get_pserver_endpoints(), to_string)

    def split_files(self, files: Sequence[str]) -> list[str]:
        """Returns this worker's contiguous share of ``files``; shares differ by at most one file."""
        return split_evenly(files, self.worker_index(), self.worker_num())

    def barrier_worker(self) -> None:
        """Waits until all workers reach this point."""
        self.role_maker.barrier_worker()

    def all_reduce_worker(self, input: Any, output: Any) -> None:
        """Writes the sum of all workers' arrays to ``output``."""
        self.role_maker.all_reduce_worker(input, output)

    @abc.abstractmethod
    def init_worker(self) -> None:
        """Prepares a worker for training."""

    @abc.abstractmethod
    def init_server(self, model_dir: str | None = None) -> None:
        """Prepares a server, optionally with the parameters of a saved model."""

    @abc.abstractmethod
    def run_server(self) -> None:
        """Serves until the last worker has stopped."""

    @abc.abstractmethod
    def stop_worker(self) -> None:
        """Reports that this worker is done."""

    @abc.abstractmethod
    def distributed_optimizer(self, optimizer: Optimizer, strategy: Any = None) -> DistributedOptimizer:
        """Returns an optimizer that distributes the program it minimizes."""

    @abc.abstractmethod
    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: Sequence[str],
        target_vars: Sequence[Any],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> Any:
        """Saves the model that predicts ``target_vars``."""

    @abc.abstractmethod
    def save_persistables(self, executor: Executor, dirname: str, main_program: Program | None = None) -> Any:
        """Saves everything needed to resume training."""


class DistributedOptimizer(abc.ABC):
    """Wraps an optimizer to distribute the program it minimizes."""

    def __init__(self, optimizer: Optimizer, strategy: Any = None) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ValueError(
                f"distributed_optimizer expects a fluid.optimizer.Optimizer, not {type(optimizer).__name__}"
            )
        self._optimizer = optimizer
        self._strategy = strategy

    def backward(
        self,
        loss: Any,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> Any:
        """Appends the gradient ops."""
        return self._optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)

    def apply_gradients(self, params_grads: Sequence[Any]) -> Any:
        """Appends the update ops."""
        return self._optimizer.apply_gradients(params_grads)

    @abc.abstractmethod
    def minimize(
        self,
        losses: Any,
        scopes: Any = None,
        startup_programs: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Appends gradient and update ops, then distributes the program."""


def split_evenly(files: Sequence[str], index: int, count: int) -> list[str]:
    """Returns contiguous part ``index`` of ``count`` of a list; the first parts get the remainder."""
    if not isinstance(files, list | tuple):
        raise TypeError(f"files must be a list of names, not {type(files).__name__}")
    each, more = divmod(len(files), count)
    begin = index * each + min(index, more)
    return list(files[begin : begin + each + (index < more)])


def _format_endpoints(endpoints: list[str], to_string: bool) -> list[str] | str:
    return ",".join(endpoints) if to_string else endpoints
