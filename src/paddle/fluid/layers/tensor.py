"""Fluid's module path for layers that create and combine tensors; every layer is available under it."""

from paddle.fluid.layers._topics import find_layer as __getattr__  # noqa: F401
