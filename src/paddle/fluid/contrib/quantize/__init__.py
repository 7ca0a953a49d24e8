"""Quantisation of whole programs."""

from paddle.fluid.contrib.quantize.quantize_transpiler import QuantizeTranspiler

__all__ = ["QuantizeTranspiler"]
