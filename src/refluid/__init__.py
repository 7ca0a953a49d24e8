"""refluid: Fluid programs on XLA."""

__version__ = "0.1.0"
