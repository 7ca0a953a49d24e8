"""Where the headers and libraries of Fluid are: refluid has none to build against."""

__all__ = ["get_include", "get_lib"]


def get_include():
    """Raises: operators are JAX functions here, not C++."""
    raise NotImplementedError(_WHY)


def get_lib():
    """Raises: operators are JAX functions here, not C++."""
    raise NotImplementedError(_WHY)


_WHY = "refluid has no headers or libraries for C++ operators; use refluid.jax_layer or fluid.layers.py_func"
