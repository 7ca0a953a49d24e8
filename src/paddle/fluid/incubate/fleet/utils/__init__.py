"""Utilities for scripts that use Fleet."""
