"""The rows an optimizer op touches: all of them for a dense gradient, the gradient's own for SelectedRows.

An update rule written with `Touched` handles both. With SelectedRows, a table is read and written only at those rows,
in place if its buffer is donated, so that the time of a step depends on the batch, not on the height of the table.
Updates of rows equal those of a dense gradient (differs: sparse-momentum, sparse-rmsprop, sparse-adam).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refluid.ops.core.values import SelectedRows


class Touched:
    """``grad`` holds the gradient of the touched rows; ``take``, ``put`` and ``add`` reach into full tables."""

    def __init__(self, grad: Any):
        self.rows, self.grad = None, grad
        if isinstance(grad, SelectedRows):
            merged = grad.merged()
            self.rows, self.grad = merged.rows, merged.values

    def take(self, table: Any) -> Any:
        """The touched rows of ``table``; zeros for a row number that means "no row"."""
        if self.rows is None:
            return table
        return table.at[self.rows].get(mode="fill", fill_value=0)

    def put(self, table: Any, values: Any) -> Any:
        """``table`` with the touched rows replaced."""
        if self.rows is None:
            return values
        return table.at[self.rows].set(values, mode="drop", unique_indices=True)

    def add(self, table: Any, values: Any) -> Any:
        """``table`` with ``values`` added to the touched rows."""
        if self.rows is None:
            return table + values
        return table.at[self.rows].add(values, mode="drop", unique_indices=True)


def add_gradient(table: Any, grad: Any, factor: Any = 1.0) -> Any:
    """``table + factor * grad``. Repeated rows need no merging here, because they add up anyway."""
    if isinstance(grad, SelectedRows):
        return table.at[grad.rows].add(factor * grad.values, mode="drop")
    return table + factor * grad


def dense_gradient(grad: Any) -> Any:
    """``grad``, for an op without a rule for SelectedRows in Fluid; raises if it is one."""
    if isinstance(grad, SelectedRows):
        raise TypeError(
            "takes no sparse gradient: build the embedding with is_sparse=False, or use an optimizer that does"
            " (SGD, Momentum, Adagrad, DecayedAdagrad, Adadelta, Adam, Adamax, RMSProp, Ftrl, Lamb)"
        )
    return grad


def gradient_of_all_rows(grad: Any) -> Any:
    """``grad`` with zeros for rows it does not have, for an op that moves or decays all rows in every step anyway.

    Fluid has no rule for SelectedRows in such an op; on servers, rows of tables are updated one by one instead.
    """
    return grad.to_dense() if isinstance(grad, SelectedRows) else grad


def single(attr: Any) -> Any:
    """A float attribute as Fluid keeps it, in float32: 1 - 0.999 would differ in its fifth digit."""
    return float(np.float32(attr)) if isinstance(attr, float) else attr


def like(scalar: Any, table: Any) -> Any:
    """A learning rate or beta power, in Fluid a tensor of shape [1], as a scalar of ``table``'s dtype."""
    return scalar.reshape(()).astype(table.dtype)
