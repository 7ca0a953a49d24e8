"""Fluid's module path for layers of sequences."""

from paddle.fluid.layers._topics import find_layer as __getattr__  # noqa: F401
