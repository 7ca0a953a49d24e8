"""Bridges to the JAX libraries of today: JAX functions and flax modules as layers, optax transformations as optimizers,
programs as flax modules.

The one room above `paddle`: it appends layers and optimizers to programs. `refluid` loads it when it is asked for.
"""
