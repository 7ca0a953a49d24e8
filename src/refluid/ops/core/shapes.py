"""Requirements on the shapes of a rule's inputs. JAX broadcasts where Fluid refuses: [N] and [N, 1] become [N, N]."""

from __future__ import annotations

import math
from typing import Any


def require_same_shape(**slots: Any) -> None:
    """Raises ValueError unless the inputs in these slots, those that are connected, have one shape."""
    if len({tuple(value.shape) for value in slots.values() if value is not None}) > 1:
        raise ValueError(f"{_listed(slots)} must have the same shape")


def require_as_many_rows(**slots: Any) -> None:
    """Raises ValueError unless the inputs in these slots, those that are connected, have equally many rows."""
    if len({value.shape[0] for value in slots.values() if value is not None}) > 1:
        raise ValueError(f"{_listed(slots)} must have the same number of rows")


def require_one_for_each_row(of: Any, **slots: Any) -> None:
    """Raises ValueError unless the inputs in these slots have a row of one element for each row of ``of``."""
    rows = of.shape[0]
    for slot, value in slots.items():
        if tuple(value.shape[:1]) != (rows,) or math.prod(value.shape) != rows:
            raise ValueError(f"{slot} must have one element for each of {rows} rows, not the shape {list(value.shape)}")


def require_rows_like(x: Any, y: Any) -> None:
    """Raises ValueError unless the rows of Y have the shape of those of X, and Y has one row or as many as X."""
    if x.ndim != y.ndim or x.shape[1:] != y.shape[1:] or y.shape[0] not in (1, x.shape[0]):
        raise ValueError("Y must have the shape of X, or its shape with one row")


def column_of(slot: str, value: Any, rows: int) -> Any:
    """``value``, [rows] or [rows, 1], as [rows, 1]; raises ValueError for any other shape."""
    if tuple(value.shape) not in ((rows,), (rows, 1)):
        raise ValueError(f"{slot} must have the shape [{rows}, 1] or [{rows}]")
    return value.reshape(rows, 1)


def _listed(slots: dict[str, Any]) -> str:
    *others, last = (slot for slot, value in slots.items() if value is not None)
    return f"{', '.join(others)} and {last}"
