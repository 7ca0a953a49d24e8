"""Layers for control flow, tensor arrays and decoding."""
