"""Smaller models: quantisation, pruning, distillation."""

from paddle._missing import missing_names
from paddle.fluid.contrib.slim.core import Compressor, ConfigFactory, Context, Strategy

__all__ = ["Compressor", "ConfigFactory", "Context", "Strategy"]
__getattr__ = missing_names(__name__)
