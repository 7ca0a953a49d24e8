"""Tools for programs."""

from paddle._missing import missing_names
from paddle.fluid.contrib import (
    decoder,
    extend_optimizer,
    inferencer,
    layers,
    memory_usage_calc,
    mixed_precision,
    model_stat,
    op_frequence,
    quantize,
    reader,
    slim,
    trainer,
    utils,
)
from paddle.fluid.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from paddle.fluid.contrib.extend_optimizer import extend_with_decoupled_weight_decay
from paddle.fluid.contrib.inferencer import Inferencer
from paddle.fluid.contrib.int8_inference import Calibrator
from paddle.fluid.contrib.layers import *  # noqa: F403
from paddle.fluid.contrib.memory_usage_calc import memory_usage
from paddle.fluid.contrib.mixed_precision import AutoMixedPrecisionLists, decorate
from paddle.fluid.contrib.model_stat import summary
from paddle.fluid.contrib.op_frequence import op_freq_statistic
from paddle.fluid.contrib.quantize import QuantizeTranspiler
from paddle.fluid.contrib.reader import distributed_batch_reader
from paddle.fluid.contrib.slim import Compressor
from paddle.fluid.contrib.trainer import *  # noqa: F403
from paddle.fluid.contrib.utils import (
    HDFSClient,
    convert_dist_to_sparse_program,
    load_persistables_for_increment,
    load_persistables_for_inference,
    multi_download,
    multi_upload,
)

__all__ = ["decoder", "inferencer", "memory_usage_calc", "mixed_precision", "op_frequence", "reader", "trainer"]
__all__ += [
    "AutoMixedPrecisionLists",
    "Calibrator",
    "Compressor",
    "QuantizeTranspiler",
    "decorate",
    "layers",
    "quantize",
    "slim",
    "utils",
]
__all__ += ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder", "op_freq_statistic", *trainer.__all__]
__all__ += layers.__all__
__all__ += ["HDFSClient", "Inferencer", "distributed_batch_reader", "memory_usage", "multi_download", "multi_upload"]
__all__ += ["convert_dist_to_sparse_program", "extend_optimizer", "extend_with_decoupled_weight_decay", "model_stat"]
__all__ += ["load_persistables_for_increment", "load_persistables_for_inference", "summary"]

__getattr__ = missing_names(__name__)
