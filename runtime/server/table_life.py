"""The life of a table on one server: which ids get rows, when rows are given up, and what a lack of room means.

Rows are given up at steps of the table's own, so that two runs do the same.
"""

from __future__ import annotations

import numpy as np

from refluid.ir.table_options import TableOptions
from refluid.log import Log
from refluid.runtime.tables.table import Table

_SPARE = 16  # with on_full="evict", one of so many rows of the budget is kept free


class Life:
    """Applies the options of a table.

    Args:
      endpoint: the server, for messages.
    """

    def __init__(self, table: Table, options: TableOptions, endpoint: str, log: Log | None = None):
        self.options, self._table = options, table
        self._endpoint, self._log = endpoint, log or Log("server", endpoint=endpoint)
        self._warned = False
        self.evicted = 0  # rows so far
        self.most_rows = options.budget // table.row_bytes if options.budget else None
        if options.min_count > 1 or options.probability < 1.0:
            table.admit(min_count=options.min_count, probability=options.probability)

    def check_room(self, ids: np.ndarray) -> None:
        """Raises a ValueError if an update of these ids would take more memory than there may be used."""
        if self.most_rows is None or self.options.on_full != "refuse":
            return
        held = len(self._table)
        if held + len(ids) <= self.most_rows:
            return
        new = self._table.count_new(ids)
        if held + new > self.most_rows:
            raise ValueError(
                f"table {self._table.name} is full: it has {held} rows on server {self._endpoint}, an update would add "
                f"{new}, and its budget of {self.options.budget} bytes is enough for {self.most_rows}. Nothing of the "
                "update was applied here. Give up rows with refluid.shrink_tables(...), raise the budget, add servers, "
                "or choose on_full='evict'"
            )

    def after_update(self) -> None:
        """What follows a step: the periodic shrink, and rows given up for lack of room."""
        every = self.options.shrink_every
        if every and self._table.step % every == 0:
            self.shrink()
        if self.most_rows is None or len(self._table) <= self.most_rows - self.most_rows // _SPARE:
            return
        if self.options.on_full == "evict":
            self._make_room(self.most_rows)
        elif self.options.on_full == "grow" and len(self._table) > self.most_rows:
            self._warn("a table has outgrown its budget, and grows on")

    def _make_room(self, most_rows: int) -> None:
        gone = self._table.evict_oldest(len(self._table) - most_rows + 2 * most_rows // _SPARE)
        self.evicted += gone
        self._warn("a table has reached its budget; its oldest rows are given up from now on", evicted=gone)

    def _warn(self, message: str, **fields: object) -> None:
        if not self._warned:
            self._warned = True
            table, budget = self._table, self.options.budget
            self._log.warning(message, table=table.name, rows=len(table), budget=budget, step=table.step, **fields)

    def shrink(self, options: TableOptions | None = None) -> int:
        """Decays counts, then gives up rows that are too old, too small or too rare; returns how many.

        Args:
          options: what is too old, small or rare; by default the table's own options.
        """
        chosen, table = options or self.options, self._table
        if chosen.count_decay < 1.0:
            table.decay_counts(chosen.count_decay)
        before = max(0, table.step - chosen.max_age) if chosen.max_age else 0
        if not (before or chosen.min_norm or chosen.keep_count):
            return 0
        gone = table.evict(before=before, norm=chosen.min_norm, count=chosen.keep_count)
        self.evicted += gone
        return gone
