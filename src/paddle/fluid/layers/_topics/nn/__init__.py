"""Layers with parameters, normalization, losses, sequences and recurrences."""
