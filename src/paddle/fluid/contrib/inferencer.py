"""The high-level inference API under the module path of Fluid 1.0 to 1.2."""

from paddle.fluid.inferencer import Inferencer

__all__ = ["Inferencer"]
