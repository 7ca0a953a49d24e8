"""Layers by topic. Fluid's own module paths (``layers.nn``, ``layers.tensor``, ...) find them by name."""
