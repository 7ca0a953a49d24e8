"""The high-level inference API, where Fluid 1.0 to 1.2 had it."""

from paddle.fluid.inferencer import Inferencer

__all__ = ["Inferencer"]
