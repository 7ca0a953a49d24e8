"""Fluid's variable types and dtypes: one enumeration, numbered as in its protobuf."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from refluid.ops.core.dtypes import fluid_dtype, numpy_dtype


class VarType(IntEnum):
    """The kind of a variable (LOD_TENSOR, SELECTED_ROWS, ...) or the dtype of its elements (FP32, INT64, ...)."""

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17
    TUPLE = 18
    SIZE_T = 19
    UINT8 = 20
    INT8 = 21
    BF16 = 22

    def __str__(self) -> str:
        return f"VarType.{self.name}"

    __repr__ = __str__
    __format__ = object.__format__


def as_dtype(dtype: Any) -> VarType:
    """Converts a name, a NumPy dtype, a number or a member to a dtype member."""
    return VarType(fluid_dtype(dtype))


def as_numpy(dtype: VarType) -> np.dtype:
    """Converts a dtype member to a NumPy dtype."""
    return numpy_dtype(int(dtype))
