"""Parameters as a safetensors file, which needs the package ``safetensors``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refluid.files.storage import AnyPath, RemotePath
from refluid.files.variables import check_fits, set_arrays
from refluid.ir import Variable
from refluid.scope import Scope
from refluid.tensors import LoDTensor


def to_bytes(holders: Mapping[str, Any]) -> bytes:
    """The content of a file that holds these tensors, by variable name."""
    library, arrays = _library(), {}
    for name, holder in holders.items():
        if not isinstance(holder, LoDTensor):
            raise ValueError(f"variable {name}: a safetensors file holds tensors, not {type(holder).__name__}")
        if holder.lod():
            raise ValueError(f"variable {name}: a safetensors file cannot hold its sequences")
        arrays[name] = np.ascontiguousarray(holder.value)
    return library.save(arrays)


def load_variables(scope: Scope, variables: Sequence[Variable], path: AnyPath) -> None:
    """Loads variables from a file; ignores other tensors in it."""
    library = _library()
    try:
        arrays = library.load(path.read_bytes()) if isinstance(path, RemotePath) else library.load_file(str(path))
    except importlib.import_module("safetensors").SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from error
    for variable in variables:
        if variable.name not in arrays:
            raise ValueError(f"variable {variable.name}: {path} does not hold it")
        check_fits(variable, arrays[variable.name], str(path))
    set_arrays(scope, {variable.name: arrays[variable.name] for variable in variables})


def _library() -> Any:
    try:
        return importlib.import_module("safetensors.numpy")
    except ImportError as error:
        raise ImportError("safetensors files need the package safetensors: pip install safetensors") from error
