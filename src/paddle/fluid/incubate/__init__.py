"""Fluid's incubating modules: Fleet, the high-level API for distributed training, and generators of dataset files."""

from paddle.fluid.incubate import data_generator

__all__ = ["data_generator"]

__version__ = "0.1.0"
