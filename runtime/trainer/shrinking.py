"""Rows of tables are given up on request of a trainer."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

from refluid.ir.table_options import TableOptions
from refluid.ir.variable import Variable, name_of
from refluid.runtime.trainer import session as sessions
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import pb


def shrink_tables(
    tables: Sequence[Variable | str] | None = None,
    *,
    max_age: int | None = None,
    min_norm: float | None = None,
    keep_count: float | None = None,
    count_decay: float | None = None,
) -> dict[str, int]:
    """Has all servers of the job give up rows of tables that grow, and returns how many of each table.

    A row is given up if any of these holds. If its id is used again, its row begins anew. Call it on one trainer, and
    where runs must be the same, while the others wait at a barrier.

    >>> refluid.shrink_tables(["emb"], max_age=1_000_000, min_norm=1e-3)

    Args:
      tables: parameters or names; by default all tables that grow.
      max_age: rows without an update in more than so many steps.
      min_norm: rows whose weights have a smaller L2 norm.
      keep_count: rows whose count of updates is smaller; counts can be decayed.
      count_decay: what all counts are multiplied by first.

    Without any of them, every table is shrunk by its own `refluid.table_options`.
    """
    session = sessions.current()
    if session is None:
        raise RuntimeError("shrink_tables: this process is no trainer of a job; call it after its startup program")
    given = {"max_age": max_age, "min_norm": min_norm, "keep_count": keep_count, "count_decay": count_decay}
    chosen = {name: value for name, value in given.items() if value is not None}
    request = pb.ShrinkRequest(
        caller=session.caller,
        tables=[name_of(table) for table in tables or ()],
        options=str(TableOptions(**chosen)) if chosen else "",
        id=secrets.randbits(63),
    )
    session.flush()
    gone: dict[str, int] = {}
    for endpoint in session.job.endpoints:
        reply = session.call(endpoint, "Shrink", request)
        for table, count in json.loads(wire.decode(pb.Text, reply).text).items():
            gone[table] = gone.get(table, 0) + count
    return gone
