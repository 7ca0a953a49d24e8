"""Tools for programs."""

from paddle.fluid.contrib import decoder, inferencer, memory_usage_calc, op_frequence, reader, trainer, utils
from paddle.fluid.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from paddle.fluid.contrib.inferencer import Inferencer
from paddle.fluid.contrib.memory_usage_calc import memory_usage
from paddle.fluid.contrib.op_frequence import op_freq_statistic
from paddle.fluid.contrib.reader import distributed_batch_reader
from paddle.fluid.contrib.trainer import (
    BeginEpochEvent,
    BeginStepEvent,
    CheckpointConfig,
    EndEpochEvent,
    EndStepEvent,
    Trainer,
)
from paddle.fluid.contrib.utils import HDFSClient, multi_download, multi_upload

__all__ = [
    "BeamSearchDecoder",
    "BeginEpochEvent",
    "BeginStepEvent",
    "CheckpointConfig",
    "EndEpochEvent",
    "EndStepEvent",
    "HDFSClient",
    "Inferencer",
    "InitState",
    "StateCell",
    "Trainer",
    "TrainingDecoder",
    "decoder",
    "distributed_batch_reader",
    "inferencer",
    "memory_usage",
    "memory_usage_calc",
    "multi_download",
    "multi_upload",
    "op_freq_statistic",
    "op_frequence",
    "reader",
    "trainer",
    "utils",
]
