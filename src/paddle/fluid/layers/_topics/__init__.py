"""Layers grouped by topic. Fluid's module paths (``layers.nn``, ``layers.tensor``, ...) look them up by name."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from paddle._missing import raise_missing


def find_layer(name: str) -> Any:
    """The layer of that name, for Fluid's own module paths (``paddle.fluid.layers.nn.fc``), or the names of all."""
    layers = importlib.import_module("paddle.fluid.layers")
    if name == "__all__":  # of a module that defines none: ``from paddle.fluid.layers.nn import *``
        return layers.__all__
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in layers.__all__:
        raise_missing(layers.__name__, name, sys._getframe(1))
    return getattr(layers, name)
