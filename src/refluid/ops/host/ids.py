"""Ids of a table that is cut by id modulo the number of parts: ids of each part, and their rows joined again."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from refluid.ops.core.checks import require
from refluid.ops.core.infer import described_elsewhere
from refluid.ops.core.registry import op
from refluid.ops.core.services import Host


@op("split_ids", inputs="Ids*", outputs="Out*", grad=None, host=True, lod=None, infer=described_elsewhere)
def split_ids(ids, *, host: Host) -> list[Any]:
    """For each part the ids that belong to it, each once, in order."""
    parts = len(host.names("Out"))
    known = np.unique(np.concatenate([np.asarray(each).reshape(-1) for each in ids]))
    return [known[known % parts == part].reshape(-1, 1) for part in range(parts)]


@op("merge_ids", inputs="Ids* Rows* X*", outputs="Out*", grad=None, lod=None, infer=described_elsewhere)
def merge_ids(ids, rows, xs):
    """For each list of ids their rows in ``X``; Rows says which id each row belongs to."""
    known = jnp.concatenate([each.reshape(-1) for each in rows])
    values = jnp.concatenate(xs)
    order = jnp.argsort(known)
    found = []
    for each in ids:
        places = order[jnp.clip(jnp.searchsorted(known[order], each.reshape(-1)), 0, known.shape[0] - 1)]
        require(known[places] == each.reshape(-1), "every id must be among Rows")
        found.append(values[places])
    return found
