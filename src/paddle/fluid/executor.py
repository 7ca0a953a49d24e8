"""The executor and scopes, under Fluid's module path."""

from refluid.executor import Executor
from refluid.fetch_handler import FetchHandler
from refluid.scope import Scope, global_scope, scope_guard
from refluid.tensors import LoDTensor

__all__ = ["Executor", "FetchHandler", "Scope", "as_numpy", "global_scope", "scope_guard"]


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
