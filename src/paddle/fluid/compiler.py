"""CompiledProgram and its strategies. XLA always compiles programs; these classes carry the script's settings."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import jax
from jax.sharding import Mesh

from refluid.ir import OpRole, Program
from refluid.ir.graph import Graph
from refluid.jobs import is_of_job, job_target, join, meets_others
from refluid.meshes import MeshTarget, divided_target
from refluid.ops.core.replicas import AXIS
from refluid.places import default_places, replica_devices, replica_target
from refluid.sharding import axes_of_partitions, partitions
from refluid.transpiler.data_parallel import LossScale, ReduceGradients, use_statistics_of_all

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
        "use_experimental_executor": False,
        "use_thread_barrier": False,
    }


class BuildStrategy(_Options):
    """How the replicas of a program work together.

    These options matter: ``reduce_strategy`` (with Reduce, each device of a process holds and updates some rows of the
    optimizer's state, and of the parameters it updates these rows only; the numbers are those of AllReduce),
    ``gradient_scale_strategy``, ``sync_batch_norm`` (batch_norm uses the statistics of all replicas' samples) and
    ``num_trainers`` (how many processes take part). The others have no effect: XLA fuses operators, reuses memory and
    orders communication itself, and gradients of all parameters meet in few messages.
    """

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
        "cache_runtime_context": False,
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
        "is_distribution": False,
        "memory_optimize": None,
        "mkldnn_enabled_op_types": frozenset(),
        "nccl_comm_num": 1,
        "num_trainers": 1,
        "reduce_strategy": ReduceStrategy.AllReduce,
        "remove_unnecessary_lock": True,
        "sync_batch_norm": False,
        "trainer_id": 0,
        "trainers_endpoints": (),
        "use_hierarchical_allreduce": False,
    }

    gradient_scale_strategy: GradientScaleStrategy
    num_trainers: int
    reduce_strategy: ReduceStrategy
    sync_batch_norm: bool
    trainer_id: int


class CompiledProgram:
    """A program with the strategies chosen for running it."""

    def __init__(self, program_or_graph: Program | Graph, build_strategy: BuildStrategy | None = None):
        if isinstance(program_or_graph, Graph):
            program_or_graph = program_or_graph.ordered_program()
        if not isinstance(program_or_graph, Program):
            raise TypeError(f"CompiledProgram expects a Program or a core.Graph, not {type(program_or_graph).__name__}")
        self._program = program_or_graph
        self._build_strategy = build_strategy
        self._exec_strategy: ExecutionStrategy | None = None
        self._loss_name: str | None = None
        self._places: Any = None
        self._share_vars_from: CompiledProgram | None = None
        self._is_data_parallel = False
        self._replicated: tuple[int, Program] | None = None  # the version it was made from, the program to run

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Any = None,
    ) -> CompiledProgram:
        """Runs one replica of the program on each device, on its share of the batch; gradients are averaged.

        Args:
          loss_name: the loss that backward starts from; needed for training programs.
          build_strategy: how gradients meet, and options that XLA has no use for.
          exec_strategy: has no effect: XLA schedules operators.
          share_vars_from: another data-parallel program, whose variables are used. Programs share the variables of the
            scope they run in anyway.
          places: one for each replica, or a `jax.sharding.Mesh` with a replica on each device (see
            `refluid.shard_parameters` for several devices of one replica); by default all GPUs or, without any, as many
            CPU devices as CPU_NUM says when the program runs first.
        """
        if self._is_data_parallel:
            raise AssertionError("with_data_parallel has already been called on this program")
        self._is_data_parallel = True
        self._loss_name, self._places, self._share_vars_from = loss_name, places, share_vars_from
        self._build_strategy = build_strategy or self._build_strategy
        self._exec_strategy = exec_strategy
        return self

    def with_inference_optimize(self, config: Any) -> CompiledProgram:
        """Returns itself: XLA optimizes inference programs like all others."""
        return self

    _with_inference_optimize = with_inference_optimize

    @property
    def program(self) -> Program:
        return self._program

    def _program_to_run(self) -> Program:
        """The program itself or, for several replicas, a copy whose gradients are averaged."""
        if not self._is_data_parallel:
            return self._program
        version = self._program._version
        if self._replicated is None or self._replicated[0] != version:
            self._replicated = version, self._replicate()
        return self._replicated[1]

    def _replicate(self) -> Program:
        self._check_arguments()
        program, target = self._program, self._target()
        divided = isinstance(target, MeshTarget) and target.is_divided
        if (target.replicas == 1 and not divided) or meets_others(program):
            return program
        scale = LossScale(int(self._strategy.gradient_scale_strategy))
        copy = ReduceGradients(target.replicas, self._loss_name, scale).apply(program)
        if self._strategy.sync_batch_norm:
            use_statistics_of_all(copy)
        copy.uid, copy.target = program.uid, target  # they share the program's random numbers
        copy.partitions = self._partitions(copy, target)
        return copy

    def _partitions(self, program: Program, target: Any) -> dict[str, Any]:
        """How devices share out state; those of several processes do not, because files would need all of it."""
        if target.local < target.replicas:
            return {}
        sizes = dict(target.mesh.shape) if isinstance(target, MeshTarget) else {AXIS: target.replicas}
        reduces = self._strategy.reduce_strategy == BuildStrategy.ReduceStrategy.Reduce
        return partitions(program, sizes, reduces=reduces)

    def _check_arguments(self) -> None:
        other = self._share_vars_from
        if other is not None and not other._is_data_parallel:
            raise ValueError("share_vars_from is not data-parallel; call its with_data_parallel first")
        trains = any(op.role & OpRole.Backward for op in self._program.global_block().ops)
        if trains and self._loss_name is None:
            raise AssertionError("the program has backward ops, so with_data_parallel needs loss_name")

    def _target(self) -> Any:
        """Where the replicas run; decided once."""
        if self._places is None:
            self._places = default_places()
        if isinstance(self._places, Mesh):
            return divided_target(self._places, axes_of_partitions(self._program))
        places = self._places if isinstance(self._places, list | tuple) else [self._places]
        if not is_of_job(self._program) and self._strategy.num_trainers == 1:
            return replica_target(places)
        return self._target_in_job(places)

    @property
    def _strategy(self) -> BuildStrategy:
        return self._build_strategy or BuildStrategy()

    def _target_in_job(self, places: Sequence[Any]) -> Any:
        """Where the replicas of all processes run."""
        program = self._program
        if is_of_job(program):
            join(program)
        joined, expected = jax.process_count(), max(self._strategy.num_trainers, len(program._trainers_endpoints))
        if joined != expected:
            raise RuntimeError(
                f"num_trainers is {expected}, but {joined} process{'es have' if joined > 1 else ' has'} joined; "
                'transpile the program with DistributeTranspilerConfig.mode = "nccl2" and run its startup program first'
            )
        if len(places) > 1 and meets_others(program):
            raise ValueError("the program sums its gradients over processes already; it runs on one device of each")
        return job_target(replica_devices(places))

    def _device_count(self) -> int:
        return self._target().replicas if self._is_data_parallel else 1
