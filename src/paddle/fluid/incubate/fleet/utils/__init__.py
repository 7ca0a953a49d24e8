"""Utilities for scripts that use Fleet."""

from paddle._missing import missing_names

__getattr__ = missing_names(__name__)
