"""Fluid's module path for what layers of static and dynamic graphs share; here, LayerHelper is all of it."""

from paddle.fluid.layer_helper import LayerHelper as LayerHelperBase

__all__ = ["LayerHelperBase"]
