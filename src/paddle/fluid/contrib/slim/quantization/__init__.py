"""Quantisation: passes over graphs, and a strategy."""

from paddle._missing import missing_names
from paddle.fluid.contrib.slim.quantization import quantization_pass
from paddle.fluid.contrib.slim.quantization.post_training_quantization import PostTrainingQuantization
from paddle.fluid.contrib.slim.quantization.quantization_pass import *  # noqa: F403
from paddle.fluid.contrib.slim.quantization.quantization_strategy import QuantizationStrategy
from paddle.fluid.contrib.slim.quantization.weight_quantization import WeightQuantization

__all__ = ["PostTrainingQuantization", "QuantizationStrategy", "WeightQuantization"]
__all__ += quantization_pass.__all__

__getattr__ = missing_names(__name__)
