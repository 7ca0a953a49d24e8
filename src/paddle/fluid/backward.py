"""Differentiation, under Fluid's module path."""

from refluid.ir.backward import append_backward, calc_gradient, gradients

__all__ = ["append_backward", "calc_gradient", "gradients"]
