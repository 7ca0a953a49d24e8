"""Optimizer ops: one update of one parameter each."""
