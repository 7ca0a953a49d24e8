"""Fluid's dtype numbers and NumPy's dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

# VarType.Type of Fluid's framework protobuf, for the types that hold numbers.
_NUMPY = {
    0: np.dtype(bool),
    1: np.dtype(np.int16),
    2: np.dtype(np.int32),
    3: np.dtype(np.int64),
    4: np.dtype(np.float16),
    5: np.dtype(np.float32),
    6: np.dtype(np.float64),
    19: np.dtype(np.uint64),
    20: np.dtype(np.uint8),
    21: np.dtype(np.int8),
    22: np.dtype(ml_dtypes.bfloat16),
}
_FLUID = {dtype: number for number, dtype in _NUMPY.items()}


def numpy_dtype(dtype: Any) -> np.dtype:
    """The NumPy dtype of a Fluid dtype number, a name such as 'float32', or a NumPy dtype."""
    if isinstance(dtype, bool):
        raise TypeError(f"{dtype} is not a dtype")
    if isinstance(dtype, int):
        try:
            return _NUMPY[int(dtype)]
        except KeyError:
            raise TypeError(f"{dtype} is not the number of a dtype that holds values") from None
    return np.dtype(dtype)


def fluid_dtype(dtype: Any) -> int:
    """Fluid's number for a dtype."""
    try:
        return _FLUID[numpy_dtype(dtype)]
    except (KeyError, TypeError):
        raise TypeError(f"Fluid has no dtype {dtype!r}") from None
