"""Fluid 1.6's data variable, which has exactly the declared shape; feeds are checked against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable

__all__ = ["data"]


def data(name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0) -> Variable:
    """Creates a variable to feed; None or -1 is a dim of any size."""
    check_type(name, "name", (str, bytes), "data")
    check_type(shape, "shape", (list, tuple), "data")
    dims = [-1 if dim is None else dim for dim in shape]
    return LayerHelper("data", name=name).create_global_variable(
        name=name, shape=dims, dtype=dtype, stop_gradient=True, lod_level=lod_level, is_data=True, need_check_feed=True
    )
