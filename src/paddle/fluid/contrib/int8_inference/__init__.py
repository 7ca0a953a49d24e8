"""Calibration for int8 inference, as Fluid 1.5 has it."""

from paddle.fluid.contrib.int8_inference.utility import Calibrator

__all__ = ["Calibrator"]
