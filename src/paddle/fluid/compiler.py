"""CompiledProgram and its strategies. XLA always compiles programs; these classes carry the script's settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from refluid.ir import Program
from refluid.places import is_compiled_with_cuda

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]


class _Options:
    """Named options with defaults; an unknown name is an error."""

    _defaults: dict[str, Any] = {}

    def __init__(self):
        self.__dict__.update(self._defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(f"{type(self).__name__} has no option {name}")
        self.__dict__[name] = value


class ExecutionStrategy(_Options):
    """Thread counts and lifetimes of temporaries; XLA decides both, so these options have no effect."""

    _defaults = {
        "allow_op_delay": False,
        "dry_run": False,
        "num_iteration_per_drop_scope": 100,
        "num_iteration_per_run": 1,
        "num_threads": 0,
        "type": None,
        "use_cuda": False,
        "use_thread_barrier": False,
    }


class BuildStrategy(_Options):
    """Fusions, memory reuse and gradient reduction; XLA does the first two itself, so most options have no effect."""

    class ReduceStrategy(IntEnum):
        """How gradients are reduced across devices."""

        AllReduce = 0
        Reduce = 1

    class GradientScaleStrategy(IntEnum):
        """The initial value of the loss gradient on each device."""

        CoeffNumDevice = 0
        One = 1
        Customized = 2

    _defaults = {
        "async_mode": False,
        "debug_graphviz_path": "",
        "enable_auto_fusion": False,
        "enable_backward_optimizer_op_deps": True,
        "enable_inplace": True,
        "enable_parallel_graph": False,
        "enable_sequential_execution": False,
        "fuse_all_optimizer_ops": False,
        "fuse_all_reduce_ops": False,
        "fuse_bn_act_ops": False,
        "fuse_broadcast_ops": False,
        "fuse_elewise_add_act_ops": False,
        "fuse_relu_depthwise_conv": False,
        "gradient_scale_strategy": GradientScaleStrategy.CoeffNumDevice,
        "hierarchical_allreduce_inter_nranks": 0,
        "memory_optimize": None,
        "nccl_comm_num": 1,
        "num_trainers": 1,
        "reduce_strategy": ReduceStrategy.AllReduce,
        "remove_unnecessary_lock": True,
        "sync_batch_norm": False,
        "trainer_id": 0,
        "trainers_endpoints": [],
        "use_hierarchical_allreduce": False,
    }


class CompiledProgram:
    """A program with the strategies chosen for running it."""

    def __init__(self, program_or_graph: Program, build_strategy: BuildStrategy | None = None):
        if not isinstance(program_or_graph, Program):
            raise TypeError(f"CompiledProgram expects a Program, not {type(program_or_graph).__name__}")
        self._program = program_or_graph
        self._build_strategy = build_strategy
        self._exec_strategy: ExecutionStrategy | None = None
        self._loss_name: str | None = None
        self._places: Sequence[Any] | None = None
        self._is_data_parallel = False

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Sequence[Any] | None = None,
    ) -> CompiledProgram:
        """Requests one replica per device; the executor splits the batch over them."""
        if self._is_data_parallel:
            raise RuntimeError("with_data_parallel has already been called on this program")
        self._is_data_parallel = True
        self._loss_name, self._places = loss_name, places
        self._build_strategy = build_strategy or self._build_strategy
        self._exec_strategy = exec_strategy
        return self

    def with_inference_optimize(self, config: Any) -> CompiledProgram:
        """Returns itself: XLA optimizes inference programs like all others."""
        return self

    @property
    def program(self) -> Program:
        return self._program

    def _single_device_program(self) -> Program:
        """Returns the program the executor runs; several devices require collective mode."""
        devices = self._device_count()
        if devices > 1:
            raise NotImplementedError(
                f"data parallelism over {devices} devices requires collective mode, which is not supported yet; "
                "set CPU_NUM=1 or pass a single place"
            )
        return self._program

    def _device_count(self) -> int:
        if not self._is_data_parallel:
            return 1
        if self._places is not None:
            return len(self._places) if isinstance(self._places, list | tuple) else 1
        if is_compiled_with_cuda():
            return len([x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",") if x])
        return int(os.environ.get("CPU_NUM", "1"))
