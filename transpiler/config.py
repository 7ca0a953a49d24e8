"""How a program is to be distributed: Fluid's configuration, and the mode that follows from it."""

from __future__ import annotations

from typing import Any

from refluid.ir.modes import Mode


class DistributeTranspilerConfig:
    """What `DistributeTranspiler` may be told.

    Attributes:
      slice_var_up: cut large parameters into slices, one per server at most.
      split_method: the class that places slices: RoundRobin by default, HashName, or your own PSDispatcher.
      min_block_size: the least number of elements in a slice.
      enable_dc_asgd: async only: corrects a gradient by how far the parameter has moved since the trainer read it.
      sync_mode: False for async training, as ``sync_mode=False`` of `transpile`.
      runtime_split_send_recv: send and receive whole variables and cut them on the way; not in sync mode.
      half_async: merge the gradients of a trainer's own threads or steps, then exchange them.
      completely_not_async: with half_async: sync training after all, which is how Fleet's SyncStrategy asks for it.
      geo_sgd_mode: local SGD; trainers exchange how far their parameters have moved.
      geo_sgd_need_push_nums: how many steps lie between such exchanges.
      mode: "pserver"; "nccl2" and "collective" are for training without servers.
      print_log: print what is placed where.
      wait_port: Fleet: whether `minimize` returns only when all servers listen; else the first exchange waits.
    The others belong to collective training.
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
    """How many threads real Fluid's servers use for what. Accepted; servers here do all of it on one event loop."""

    def __init__(self):
        self._rpc_send_thread_num = 12
        self._rpc_get_thread_num = 12
        self._rpc_prefetch_thread_num = 12


def choose_mode(config: DistributeTranspilerConfig, sync_mode: bool = True) -> Mode:
    """The mode that a configuration and the argument of `transpile` ask for; who asks for less than sync gets it."""
    if config.geo_sgd_mode:
        mode = Mode.GEO
    elif config.half_async:
        mode = Mode.SYNC if config.completely_not_async else Mode.HALF_ASYNC
    else:
        mode = Mode.SYNC if sync_mode and config.sync_mode else Mode.ASYNC
    if config.enable_dc_asgd and mode is not Mode.ASYNC:
        raise ValueError(
            f"enable_dc_asgd corrects the gradients of async training, this is {mode.name.lower()}: set sync_mode=False"
        )
    return mode


def check_config(config: DistributeTranspilerConfig) -> None:
    """Raises for what cannot work."""
    if config.mode != "pserver":
        raise NotImplementedError(
            f"config.mode={config.mode!r} trains without servers, by collectives; this version has mode='pserver' only"
        )
    if config.min_block_size < 1:
        raise ValueError(f"min_block_size must be at least 1, not {config.min_block_size}")
    if config.geo_sgd_mode and config.geo_sgd_need_push_nums < 1:
        raise ValueError(f"geo_sgd_need_push_nums must be at least 1, not {config.geo_sgd_need_push_nums}")
