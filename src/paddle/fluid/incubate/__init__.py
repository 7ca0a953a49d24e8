"""Fluid's incubating modules: Fleet, the high-level API for distributed training."""

__version__ = "0.1.0"
