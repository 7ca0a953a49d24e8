"""Fluid's module path for layers of contrib."""

from paddle.fluid.layers._topics.detection.suppression import multiclass_nms2

__all__ = ["multiclass_nms2"]
