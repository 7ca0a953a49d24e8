"""Fluid's messages."""
