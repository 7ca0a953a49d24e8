"""Tensor creation, arithmetic, indexing, reductions and random numbers."""
