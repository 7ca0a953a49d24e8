"""refluid: Fluid programs on XLA.

The compiler behind ``paddle.fluid``, usable without it: `refluid.to_jax` turns a program into a pure JAX function.
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["to_jax"]


def __getattr__(name: str) -> Any:
    if name == "to_jax":
        from refluid.jax_function import to_jax

        return to_jax
    raise AttributeError(f"module 'refluid' has no attribute {name!r}")
