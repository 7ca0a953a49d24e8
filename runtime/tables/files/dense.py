"""A table in files as one tensor, for programs that run in one process."""

from __future__ import annotations

import numpy as np

from refluid.files.storage import AnyPath
from refluid.ops.core.growing import SHARDS
from refluid.runtime.tables.files.chain import open_table
from refluid.runtime.tables.files.loading import load_into
from refluid.runtime.tables.files.weights import rule_of
from refluid.runtime.tables.rules import Beginning
from refluid.runtime.tables.table import Table


def read_dense(path: AnyPath, height: int) -> np.ndarray:
    """The rows 0 to height - 1 of a table, as servers would answer with them; those that it lacks as they begin.

    Raises:
      ValueError: the table has rows with other ids.
    """
    saved = open_table(path)
    for ids, _ in saved.records():
        strange = ids[(ids < 0) | (ids >= height)]
        if len(strange):
            raise ValueError(
                f"{path} has a row with id {strange[0]}; in this program the table has the rows 0 to {height - 1}. "
                "Only parameter servers hold rows with any ids"
            )
    begins = Beginning.read(np.array(saved.manifest.beginning))
    table = Table(saved.manifest.table, saved.form, rule_of(saved.manifest), begins)
    load_into(table, saved, (0, SHARDS))
    return table.read(np.arange(height), creates=False)
