"""A model for inference whose tables are in Redis, as a service has it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refluid.ir import Variable
from refluid.runtime.inference.any_rows import AnyRows
from refluid.runtime.tables.files.online import OnlineError, OnlineForm, OnlineRows


class RowsOnline(AnyRows):
    """The rows of a table in Redis. An id without a row is zeros, and remembered.

    Attributes:
      form: what Redis says of the rows.
      lacking: the ids without rows that were looked up.
    """

    def __init__(self, variable: Variable, rows: OnlineRows, form: OnlineForm):
        shape, dtype = variable.shape, np.dtype(form.dtype)
        if form.width != shape[-1]:
            raise OnlineError(f"table {variable.name} has rows of {shape[-1]}; those in Redis have {form.width}")
        super().__init__(variable.name, shape, dtype)
        self._rows, self.form, self.lacking = rows, form, set[int]()

    def read_rows(self, rows: np.ndarray | range) -> np.ndarray:
        ids = np.asarray(rows, np.int64)
        found, there = self._rows.read(ids)
        self.lacking.update(ids[~there].tolist())
        return found

    def missing(self, ids: np.ndarray) -> np.ndarray:
        found = np.unique(ids)
        return found[~self._rows.read(found)[1]]

    def ids(self) -> Iterator[np.ndarray]:
        raise NotImplementedError(f"the ids of {self.name} in Redis are not listed")

    def where(self) -> str:
        return "in Redis"


def find_online(variable: Variable, url: str) -> RowsOnline | None:
    """The rows of a table that `refluid table push` put into Redis; None if there are none."""
    rows = OnlineRows(url, f"{variable.name}:")
    form = rows.form()
    return None if form is None else RowsOnline(variable, rows, form)
