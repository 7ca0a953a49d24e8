"""Fluid's module path for detection layers; every layer is available under it."""

from paddle.fluid.layers._topics import find_layer as __getattr__  # noqa: F401
