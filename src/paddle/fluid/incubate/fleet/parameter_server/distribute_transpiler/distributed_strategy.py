"""Strategies: a training mode with its settings, as in Fleet of Fluid 1.7 and 1.8."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from paddle.fluid.compiler import BuildStrategy, ExecutionStrategy
from paddle.fluid.incubate.fleet.parameter_server.mode import DistributedMode
from paddle.fluid.transpiler.distribute_transpiler import DistributeTranspilerConfig, ServerRuntimeConfig
from refluid import flags

__all__ = [
    "AsyncStrategy",
    "DistributedStrategy",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
]

# The communicator flags of each mode. Those that count gradients default to one per thread.
_PER_THREAD = (
    "communicator_max_merge_var_num",
    "communicator_send_queue_size",
    "communicator_min_send_grad_num_before_recv",
)
_FLAGS = (
    "communicator_max_merge_var_num",
    "communicator_send_queue_size",
    "communicator_independent_recv_thread",
    "communicator_min_send_grad_num_before_recv",
    "communicator_thread_pool_size",
    "communicator_send_wait_times",
    "communicator_is_sgd_optimizer",
    "rpc_deadline",
    "rpc_retry_times",
)
_MERGING = (
    "communicator_max_merge_var_num",
    "communicator_send_wait_times",
    "communicator_thread_pool_size",
    "communicator_send_queue_size",
)
_BY_MODE = {
    DistributedMode.SYNC: _MERGING,
    DistributedMode.HALF_ASYNC: _MERGING,
    DistributedMode.ASYNC: _FLAGS,
    DistributedMode.GEO: ("communicator_thread_pool_size", "communicator_send_wait_times"),
}
_DEBUG_OPTIONS = {
    "dump_slot": (bool, False),
    "dump_converter": (str, ""),
    "dump_fields": (list, ()),
    "dump_file_num": (int, 16),
    "dump_fields_path": (str, ""),
    "dump_param": (list, ()),
}


class TrainerRuntimeConfig:
    """Communicator settings of a trainer: flags, by default from the environment."""

    def __init__(self) -> None:
        self.mode: int | None = None
        self.runtime_configs = {name: self._default(name) for name in _FLAGS}

    @staticmethod
    def _default(name: str) -> str:
        if f"FLAGS_{name}" in os.environ:
            return os.environ[f"FLAGS_{name}"]
        if name in _PER_THREAD:
            return str(_threads())
        value = flags.read_flag(f"FLAGS_{name}")
        return str(int(value) if isinstance(value, bool) else value)

    def get_communicator_flags(self) -> dict[str, str]:
        """Returns the flags that apply in this mode; modes that merge gradients merge one per thread."""
        if self.mode is None:
            raise ValueError("a TrainerRuntimeConfig has flags only as part of a strategy")
        chosen = {name: str(self.runtime_configs[name]) for name in _BY_MODE[self.mode]}
        if self.mode in (DistributedMode.SYNC, DistributedMode.HALF_ASYNC):
            for name in _PER_THREAD:
                if name in chosen and chosen[name] != str(_threads()):
                    print(f"WARNING: in sync and half_async mode {name} is CPU_NUM, {_threads()}, not {chosen[name]}")
                    chosen[name] = str(_threads())
        return chosen

    def get_changed_flags(self) -> dict[str, str]:
        """Returns those of the mode's flags that the script has changed."""
        return {name: value for name, value in self.get_communicator_flags().items() if value != self._default(name)}

    def __repr__(self) -> str:
        width = max(map(len, self.runtime_configs))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.runtime_configs.items())


def _threads() -> int:
    return int(os.environ.get("CPU_NUM", "1"))


class DistributedStrategy:
    """All settings of a job; the subclasses are the modes."""

    mode: int = DistributedMode.SYNC

    def __init__(self) -> None:
        self._program_config = DistributeTranspilerConfig()
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()
        self._execute_strategy = ExecutionStrategy()
        self._build_strategy = BuildStrategy()
        self.debug_opt: dict[str, Any] = {}
        self._execute_strategy.num_threads = _threads()
        self._execute_strategy.use_thread_barrier = self.mode in (DistributedMode.SYNC, DistributedMode.HALF_ASYNC)
        self._build_strategy.async_mode = True
        self._trainer_runtime_config.mode = self.mode
        self._complete(self._program_config)

    def _complete(self, config: DistributeTranspilerConfig) -> None:
        """Sets the fields that the mode requires."""
        config.sync_mode = False
        config.runtime_split_send_recv = True
        config.half_async = self.mode in (DistributedMode.SYNC, DistributedMode.HALF_ASYNC)
        config.completely_not_async = self.mode == DistributedMode.SYNC
        config.geo_sgd_mode = self.mode == DistributedMode.GEO

    def get_program_config(self) -> DistributeTranspilerConfig:
        """Returns the transpiler configuration."""
        return self._program_config

    def set_program_config(self, config: DistributeTranspilerConfig | Mapping[str, Any]) -> None:
        """Updates some fields (from a dict) or replaces the configuration; the mode's own fields are kept."""
        self._program_config = _changed(self._program_config, config, "program_config")
        self._complete(self._program_config)

    def get_trainer_runtime_config(self) -> TrainerRuntimeConfig:
        """Returns the communicator settings of a trainer."""
        return self._trainer_runtime_config

    def set_trainer_runtime_config(self, config: TrainerRuntimeConfig | Mapping[str, Any]) -> None:
        """Updates some flags (from a dict) or replaces the settings."""
        current = self._trainer_runtime_config
        if isinstance(config, TrainerRuntimeConfig):
            self._trainer_runtime_config = config
            config.mode = self.mode
            return
        _check_keys(current, "trainer_runtime_config", config, current.runtime_configs)
        current.runtime_configs.update(config)

    def get_server_runtime_config(self) -> ServerRuntimeConfig:
        """Returns the server settings."""
        return self._server_runtime_config

    def set_server_runtime_config(self, config: ServerRuntimeConfig | Mapping[str, Any]) -> None:
        """Updates some fields (from a dict) or replaces the settings."""
        self._server_runtime_config = _changed(self._server_runtime_config, config, "server_runtime_config")

    def get_execute_strategy(self) -> ExecutionStrategy:
        """Returns the exec_strategy for ``CompiledProgram.with_data_parallel``."""
        return self._execute_strategy

    def set_execute_strategy(self, config: ExecutionStrategy | Mapping[str, Any]) -> None:
        """Updates some fields (from a dict) or replaces the strategy."""
        self._execute_strategy = _changed(self._execute_strategy, config, "execute_strategy")

    def get_build_strategy(self) -> BuildStrategy:
        """Returns the build_strategy for ``CompiledProgram.with_data_parallel``."""
        return self._build_strategy

    def set_build_strategy(self, config: BuildStrategy | Mapping[str, Any]) -> None:
        """Updates some fields (from a dict) or replaces the strategy."""
        self._build_strategy = _changed(self._build_strategy, config, "build_strategy")

    def get_debug_opt(self) -> dict[str, Any]:
        """Returns the debug options for training from a dataset."""
        return self.debug_opt

    def set_debug_opt(self, opt_info: Mapping[str, Any]) -> None:
        """Sets the debug options."""
        self.debug_opt = {name: kind(opt_info.get(name, default)) for name, (kind, default) in _DEBUG_OPTIONS.items()}


def _changed(current: Any, config: Any, name: str) -> Any:
    """Returns ``current`` updated from a dict, or ``config`` in its place."""
    if isinstance(config, type(current)):
        return config
    keys = [key for key in dir(current) if not key.startswith("__")]
    _check_keys(current, name, config, keys)
    for key, value in config.items():
        setattr(current, key, value)
    return current


def _check_keys(current: Any, name: str, config: Any, keys: Any) -> None:
    if not isinstance(config, Mapping):
        raise TypeError(f"{name} expects a dict or a {type(current).__name__}, not {type(config).__name__}")
    for key in config:
        if key not in keys:
            raise ValueError(f"{type(current).__name__} has no {key}")


class SyncStrategy(DistributedStrategy):
    """Every step waits for the gradients of all trainers."""

    mode = DistributedMode.SYNC


class AsyncStrategy(DistributedStrategy):
    """No waiting: gradients are sent and parameters received in the background."""

    mode = DistributedMode.ASYNC


class HalfAsyncStrategy(DistributedStrategy):
    """A trainer waits until its own gradients are applied, but not for other trainers."""

    mode = DistributedMode.HALF_ASYNC


class GeoStrategy(DistributedStrategy):
    """Every trainer updates its own parameters and exchanges the differences every ``update_frequency`` steps."""

    mode = DistributedMode.GEO

    def __init__(self, update_frequency: int = 100) -> None:
        super().__init__()
        self._program_config.geo_sgd_need_push_nums = update_frequency


class StrategyFactory:
    """Creates strategies."""

    create_sync_strategy = SyncStrategy
    create_half_async_strategy = HalfAsyncStrategy
    create_async_strategy = AsyncStrategy
    create_geo_strategy = GeoStrategy
