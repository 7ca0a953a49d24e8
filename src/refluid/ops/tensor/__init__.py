"""Ops on tensors as such: arithmetic, shapes, indexing, reductions, random numbers."""
