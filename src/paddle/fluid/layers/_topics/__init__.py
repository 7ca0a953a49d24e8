"""Layers grouped by topic. Fluid's module paths (``layers.nn``, ``layers.tensor``, ...) look them up by name."""

from __future__ import annotations

import importlib
from typing import Any


def find_layer(name: str) -> Any:
    """The layer of that name, for Fluid's own module paths (``paddle.fluid.layers.nn.fc``)."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module("paddle.fluid.layers"), name)
