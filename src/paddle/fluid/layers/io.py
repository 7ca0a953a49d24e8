"""Data variables that are fed, and variables loaded from files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable, VarType

__all__ = ["data", "load"]


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """Creates a variable to feed; prepends -1 for the batch to ``shape``, unless it already has an unknown dim."""
    dims = [-1 if dim is None else int(dim) for dim in shape]
    if append_batch_size and all(dim >= 0 for dim in dims):
        dims = [-1, *dims]
    helper = LayerHelper("data", name=name)
    variable = helper.create_global_variable(
        name=name, shape=dims, dtype=dtype, type=type, lod_level=lod_level, is_data=True
    )
    variable.stop_gradient = stop_gradient
    return variable


def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> None:
    """Loads ``out`` from a file written by a save op or `fluid.io.save_vars`, whenever the program runs."""
    attrs: dict[str, Any] = {"file_path": file_path}
    if load_as_fp16 is not None:
        attrs["load_as_fp16"] = load_as_fp16
    LayerHelper("load").append_op(type="load", inputs={}, outputs={"Out": out}, attrs=attrs)
