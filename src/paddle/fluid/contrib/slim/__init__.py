"""Smaller models: quantisation, pruning, distillation."""
