"""Fluid's module path for comparisons and control flow; every layer is available under it."""

from paddle.fluid.layers._topics import find_layer as __getattr__  # noqa: F401
