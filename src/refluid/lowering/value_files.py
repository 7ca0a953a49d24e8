"""Values in files, for the ops save, load, save_combine and load_combine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from refluid.files.storage import at
from refluid.files.tensors import TensorFileError, read_lod_tensor, read_selected_rows, write_holder
from refluid.files.writing import atomic_write
from refluid.ir.operator import Operator
from refluid.ir.vartype import VarType
from refluid.lowering.buckets import to_ragged
from refluid.ops.core.values import Ragged, SelectedRows
from refluid.scope import Scope
from refluid.tensors import LoDTensor, SelectedRowsTensor


def write_values(
    path: str, names: Sequence[str], values: Sequence[Any], scope: Scope, overwrite: bool, as_half: bool
) -> None:
    """Writes the values of an op's inputs into one file, in order."""
    if not overwrite and at(path).exists():
        raise ValueError(f"{path} already exists, and the op has overwrite=False")
    with atomic_write(path) as stream:
        for name, value in zip(names, values, strict=True):
            holder = _holder(name, value, scope)
            if as_half:
                tensor = holder.get_tensor() if isinstance(holder, SelectedRowsTensor) else holder
                tensor.value = np.asarray(tensor.value).astype(np.float16)
            write_holder(stream, holder)


def _holder(name: str, value: Any, scope: Scope) -> LoDTensor | SelectedRowsTensor:
    if isinstance(value, SelectedRows):
        return SelectedRowsTensor.of(value)
    if isinstance(value, Ragged):
        return LoDTensor.of_sequences(value)
    held = scope.find_var(name)
    is_here = held is not None and isinstance(held.holder, LoDTensor) and held.holder.value is value
    return LoDTensor(value, held.holder.lod() if held is not None and is_here else ())


def read_values(path: str, operator: Operator, as_half: bool) -> list[Any]:
    """Reads the values of a load op's outputs from a file, in order."""
    if not at(path).is_file():
        raise ValueError(f"file {path} does not exist")
    values = []
    with at(path).open("rb") as stream:
        for name in operator.output("Out"):
            variable = operator.block.find_var_recursive(name)
            try:
                if variable is not None and variable.type == VarType.SELECTED_ROWS:
                    rows = read_selected_rows(stream)
                    values.append(SelectedRows(jnp.asarray(rows._rows), rows.get_tensor().value, rows.height()))
                else:
                    tensor = read_lod_tensor(stream)
                    values.append(to_ragged(tensor) if tensor._lod else tensor.value)
            except TensorFileError as error:
                raise TensorFileError(f"variable {name}: {path}: {error}") from error
        if stream.read(1):
            raise TensorFileError(f"{path} contains more than the {len(values)} tensors that the op loads")
    return [value.astype(jnp.float16) if as_half and hasattr(value, "astype") else value for value in values]
