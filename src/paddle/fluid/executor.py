"""The executor and scopes, under Fluid's module path."""

from refluid.executor import Executor
from refluid.fetch_handler import FetchHandler
from refluid.scope import Scope, global_scope, scope_guard
from refluid.tensors import LoDTensor

__all__ = ["Executor", "FetchHandler", "Scope", "as_numpy", "global_scope", "scope_guard"]


def _fetch_var(name, scope=None, return_numpy=True):
    """Returns the value of a variable of a scope, by default of the global one, as an array or as a tensor."""
    if not isinstance(name, str):
        raise TypeError(f"_fetch_var expects the name of a variable, not {type(name).__name__}")
    found = (global_scope() if scope is None else scope).find_var(name)
    if found is None:
        raise ValueError(f"the scope has no variable {name}; is it persistable in the program that makes it?")
    tensor = found.get_tensor()
    return as_numpy(tensor) if return_numpy else tensor


fetch_var = _fetch_var


def as_numpy(tensor):
    """Converts tensors, and lists of them, to NumPy arrays."""
    if isinstance(tensor, list | tuple):
        return [as_numpy(item) for item in tensor]
    if isinstance(tensor, LoDTensor) and tensor.lod():
        raise RuntimeError(
            "a tensor with LoD cannot be converted to a NumPy array without losing its sequence offsets; "
            "fetch with return_numpy=False"
        )
    return tensor.__array__()
