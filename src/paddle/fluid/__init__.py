"""Fluid's API on refluid: ``import paddle.fluid as fluid``."""

from paddle._missing import missing_names
from paddle.fluid import (
    average,
    backward,
    clip,
    communicator,
    compiler,
    contrib,
    core,
    data_feed_desc,
    data_feeder,
    dataset,
    debugger,
    evaluator,
    executor,
    framework,
    incubate,
    inferencer,
    initializer,
    input,
    install_check,
    io,
    layers,
    lod_tensor,
    metrics,
    net_drawer,
    nets,
    optimizer,
    parallel_executor,
    param_attr,
    profiler,
    reader,
    recordio_writer,
    regularizer,
    trainer,
    transpiler,
    unique_name,
)
from paddle.fluid.backward import append_backward, gradients
from paddle.fluid.clip import set_gradient_clip
from paddle.fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from paddle.fluid.core import CPUPlace, CUDAPinnedPlace, CUDAPlace, LoDTensor, LoDTensorArray, Scope
from paddle.fluid.data import data
from paddle.fluid.data_feed_desc import DataFeedDesc
from paddle.fluid.data_feeder import DataFeeder
from paddle.fluid.dataset import DatasetFactory, InMemoryDataset, QueueDataset
from paddle.fluid.executor import Executor, global_scope, scope_guard
from paddle.fluid.flags import get_flags, set_flags
from paddle.fluid.framework import (
    Program,
    Variable,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    default_main_program,
    default_startup_program,
    disable_dygraph,
    in_dygraph_mode,
    is_compiled_with_cuda,
    name_scope,
    program_guard,
    require_version,
)
from paddle.fluid.inferencer import Inferencer
from paddle.fluid.input import embedding, one_hot
from paddle.fluid.io import load, load_program_state, save, set_program_state
from paddle.fluid.layers import learning_rate_scheduler as learning_rate_decay
from paddle.fluid.layers.math_op_patch import monkey_patch_variable
from paddle.fluid.lod_tensor import create_lod_tensor, create_random_int_lodtensor
from paddle.fluid.parallel_executor import ParallelExecutor
from paddle.fluid.param_attr import ParamAttr, WeightNormParamAttr
from paddle.fluid.trainer import BeginEpochEvent, BeginStepEvent, CheckpointConfig, EndEpochEvent, EndStepEvent, Trainer
from paddle.fluid.transpiler import (
    DistributeTranspiler,
    DistributeTranspilerConfig,
    HashName,
    RoundRobin,
    memory_optimize,
    release_memory,
)

Tensor = LoDTensor
disable_imperative = disable_dygraph

monkey_patch_variable()

__all__ = [
    "BeginEpochEvent",
    "BeginStepEvent",
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CheckpointConfig",
    "CompiledProgram",
    "DataFeedDesc",
    "DataFeeder",
    "DatasetFactory",
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "EndEpochEvent",
    "EndStepEvent",
    "ExecutionStrategy",
    "Executor",
    "HashName",
    "InMemoryDataset",
    "Inferencer",
    "LoDTensor",
    "LoDTensorArray",
    "ParallelExecutor",
    "ParamAttr",
    "Program",
    "QueueDataset",
    "RoundRobin",
    "Scope",
    "Tensor",
    "Trainer",
    "Variable",
    "WeightNormParamAttr",
    "append_backward",
    "average",
    "backward",
    "clip",
    "communicator",
    "compiler",
    "contrib",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "data_feed_desc",
    "data_feeder",
    "dataset",
    "debugger",
    "default_main_program",
    "default_startup_program",
    "disable_dygraph",
    "disable_imperative",
    "embedding",
    "evaluator",
    "executor",
    "framework",
    "get_flags",
    "global_scope",
    "gradients",
    "in_dygraph_mode",
    "incubate",
    "inferencer",
    "initializer",
    "input",
    "install_check",
    "io",
    "is_compiled_with_cuda",
    "layers",
    "learning_rate_decay",
    "load",
    "load_program_state",
    "lod_tensor",
    "memory_optimize",
    "metrics",
    "name_scope",
    "net_drawer",
    "nets",
    "one_hot",
    "optimizer",
    "parallel_executor",
    "param_attr",
    "profiler",
    "program_guard",
    "reader",
    "recordio_writer",
    "regularizer",
    "release_memory",
    "require_version",
    "save",
    "scope_guard",
    "set_flags",
    "set_gradient_clip",
    "set_program_state",
    "trainer",
    "transpiler",
    "unique_name",
]


__getattr__ = missing_names(__name__)
