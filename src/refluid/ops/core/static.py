"""Shapes, axes and sections, which ops take as an attribute or, if they are computed, as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refluid.ops.core.infer import Described, ShapeDtype


def integers(attr: Sequence[int] = (), tensor: Any = None, tensors: Sequence[Any] = ()) -> list[int]:
    """The integers given by a list of one-element tensors, else by one tensor, else by the attribute."""
    if tensors:
        return [integer(one) for one in tensors]
    if tensor is not None:
        return [int(value) for value in np.ravel(tensor)]
    return [int(value) for value in attr]


def integer(tensor: Any) -> int:
    """The value of a one-element tensor."""
    return int(np.ravel(tensor)[0])


def described(inputs: Described, slot: str) -> ShapeDtype | None:
    """The description of the variable in ``slot``, if there is one."""
    values = inputs.get(slot)
    return values[0] if values else None


def length(described_tensor: ShapeDtype) -> int | None:
    """The number of integers in a shape tensor, or None if it is unknown."""
    count = int(np.prod(described_tensor.shape, dtype=np.int64))
    return count if all(dim >= 0 for dim in described_tensor.shape) else None
