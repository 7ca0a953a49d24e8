"""Imperative mode, which refluid does not have: importing this module says so."""

raise ImportError(
    "paddle.fluid.dygraph is not supported: refluid compiles static programs, built with fluid.layers and run by "
    "fluid.Executor. Write the model with fluid.layers; for imperative code, use JAX directly (see refluid.to_jax)",
    name=__name__,
)
