"""Smaller models: quantisation, pruning, distillation."""

from paddle._missing import missing_names

__getattr__ = missing_names(__name__)
