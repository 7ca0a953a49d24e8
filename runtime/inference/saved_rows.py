"""A table in files, for programs that run in one process: as one tensor, or as rows with any ids."""

from __future__ import annotations

import math

import numpy as np

from refluid import flags
from refluid.files.storage import AnyPath
from refluid.ir import Variable
from refluid.ir.vartype import as_numpy
from refluid.ops.core.growing import SHARDS
from refluid.runtime.inference.any_rows import RowsInMemory
from refluid.runtime.tables.files.chain import open_table
from refluid.runtime.tables.files.loading import check_width, load_into
from refluid.runtime.tables.files.weights import beginning_of, rule_of
from refluid.runtime.tables.table import Table

_LIMIT = "FLAGS_max_remote_read_gb"


def read_here(path: AnyPath, variable: Variable) -> np.ndarray | RowsInMemory:
    """A table as servers would answer with it: those rows that it lacks as they begin.

    It is a tensor of the height that the program says if that has all of its rows, and is not too large.

    Raises:
      TableFileError: a file is damaged, or the table is another one than the program's.
    """
    saved, dtype = open_table(path), as_numpy(variable.dtype)
    shape = variable.shape
    check_width(saved, shape[-1], dtype)
    table = Table(variable.name, saved.form, rule_of(saved.manifest), beginning_of(saved.manifest))
    load_into(table, saved, (0, SHARDS))
    rows = RowsInMemory(table, shape[0])
    fits = all(((ids >= 0) & (ids < shape[0])).all() for ids in rows.ids())
    if fits and math.prod(shape) * dtype.itemsize <= flags.read_flag(_LIMIT) * (1 << 30):
        return rows.read_rows(range(shape[0]))
    return rows
