"""Layers that Fluid has under contrib."""

from paddle._missing import missing_names
from paddle.fluid.contrib.layers import nn
from paddle.fluid.contrib.layers.nn import multiclass_nms2

__all__ = ["multiclass_nms2", "nn"]

__getattr__ = missing_names(__name__)
