"""Compression: what runs the strategies."""

from paddle.fluid.contrib.slim.core.compressor import Compressor, Context
from paddle.fluid.contrib.slim.core.config import ConfigFactory
from paddle.fluid.contrib.slim.core.strategy import Strategy

__all__ = ["Compressor", "ConfigFactory", "Context", "Strategy"]
