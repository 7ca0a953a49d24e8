"""Layers on tensors as such."""
