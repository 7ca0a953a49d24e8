"""How a program is to be distributed: Fluid's configuration, and the mode that follows from it."""

from __future__ import annotations

from typing import Any

from refluid.ir.modes import Mode

_MODES = ("pserver", "nccl2", "collective")
COLLECTIVE_MODES = ("grad_allreduce", "local_sgd")


class DistributeTranspilerConfig:
    """The options of `DistributeTranspiler`.

    Attributes:
      slice_var_up: cut large parameters into slices, at most one per server.
      split_method: the class that places slices: RoundRobin by default, HashName, or your own PSDispatcher.
      min_block_size: the minimum number of elements in a slice.
      enable_dc_asgd: async only: corrects a gradient by how far the parameter has moved since the trainer read it.
      sync_mode: False for async training, as ``sync_mode=False`` of `transpile`.
      runtime_split_send_recv: send and receive whole variables and cut them on the way; not in sync mode.
      half_async: merge the gradients of a trainer's own threads or steps, then exchange them.
      completely_not_async: with half_async: sync training after all, which is what Fleet's SyncStrategy sets.
      geo_sgd_mode: local SGD; trainers exchange the deltas of their parameters.
      geo_sgd_need_push_nums: the number of steps between two exchanges.
      mode: "pserver"; or, for training without servers, "nccl2", where compiling the program for replicas makes
        gradients meet, or "collective", where `transpile` does.
      collective_mode: of mode "collective": "grad_allreduce" averages gradients, "local_sgd" parameters.
      print_log: print what is placed where.
      wait_port: Fleet: whether `minimize` returns only when all servers listen; else the first exchange waits.
    The others choose communicators of NCCL; XLA makes its own, so they only appear in the program.
    """

    slice_var_up: bool = True
    split_method: Any = None
    min_block_size: int = 8192
    enable_dc_asgd: bool = False
    mode: str = "pserver"
    print_log: bool = False
    wait_port: bool = True
    half_async: bool = False
    completely_not_async: bool = False
    geo_sgd_mode: bool = False
    geo_sgd_need_push_nums: int = 100
    nccl_comm_num: int = 1
    use_hierarchical_allreduce: bool = False
    hierarchical_allreduce_inter_nranks: int = 0
    collective_mode: str | None = None
    _runtime_split_send_recv: bool = False
    _sync_mode: bool = True

    @property
    def runtime_split_send_recv(self) -> bool:
        return self._runtime_split_send_recv

    @runtime_split_send_recv.setter
    def runtime_split_send_recv(self, value: bool) -> None:
        if value and self.sync_mode:
            raise ValueError("runtime_split_send_recv=True is for async training: set config.sync_mode = False first")
        self._runtime_split_send_recv = bool(value)

    @property
    def sync_mode(self) -> bool:
        return self._sync_mode

    @sync_mode.setter
    def sync_mode(self, value: bool) -> None:
        if value and self.runtime_split_send_recv:
            raise ValueError(
                "sync_mode=True does not go with runtime_split_send_recv=True: "
                "set config.runtime_split_send_recv = False first"
            )
        self._sync_mode = bool(value)


class ServerRuntimeConfig:
    """Thread counts of Fluid's servers; accepted and ignored, as servers here use one thread pool for all requests."""

    def __init__(self):
        self._rpc_send_thread_num = 12
        self._rpc_get_thread_num = 12
        self._rpc_prefetch_thread_num = 12


def choose_mode(config: DistributeTranspilerConfig, sync_mode: bool = True) -> Mode:
    """The mode that a configuration and the argument of `transpile` select; sync only if both allow it."""
    if config.geo_sgd_mode:
        mode = Mode.GEO
    elif config.half_async:
        mode = Mode.SYNC if config.completely_not_async else Mode.HALF_ASYNC
    else:
        mode = Mode.SYNC if sync_mode and config.sync_mode else Mode.ASYNC
    if config.enable_dc_asgd and mode is not Mode.ASYNC:
        raise ValueError(
            f"enable_dc_asgd requires async training; the mode is {mode.name.lower()}. Set sync_mode=False"
        )
    return mode


def check_config(config: DistributeTranspilerConfig) -> None:
    """Raises if an option is not supported."""
    if config.mode not in _MODES:
        raise ValueError(f"config.mode must be one of {', '.join(_MODES)}, not {config.mode!r}")
    if config.mode == "collective" and config.collective_mode not in COLLECTIVE_MODES:
        raise ValueError(
            f"config.collective_mode must be one of {', '.join(COLLECTIVE_MODES)}, not {config.collective_mode!r}"
        )
    if config.min_block_size < 1:
        raise ValueError(f"min_block_size must be at least 1, not {config.min_block_size}")
    if config.geo_sgd_mode and config.geo_sgd_need_push_nums < 1:
        raise ValueError(f"geo_sgd_need_push_nums must be at least 1, not {config.geo_sgd_need_push_nums}")
