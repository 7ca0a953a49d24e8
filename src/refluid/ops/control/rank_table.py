"""The ops around the loop of a DynamicRNN: sorting sequences by length, splitting them into steps, and the inverse."""

from __future__ import annotations

import jax.numpy as jnp

from refluid.ops.control.arrays import one_count
from refluid.ops.control.steps import RankTable, Steps
from refluid.ops.core.infer import Infer, described_elsewhere, described_like
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.nested import first_items, item_room, level_view, pick_items
from refluid.ops.sequence.packing import require_sequences
from refluid.ops.sequence.recurrence import BatchOrder

_like_x = described_like("X")


@op("lod_rank_table", inputs="X", outputs="Out", grad=None, lod="aware", infer=described_elsewhere)
def lod_rank_table(x, *, level=0):
    """The sequences of a level, longest first."""
    x = require_sequences(x, "X")
    if not 0 <= level < x.levels:
        raise ValueError(f"level {level} is not one of the {x.levels} levels of X")
    return RankTable.of(x, level)


@op("max_sequence_len", inputs="RankTable", outputs="Out", grad=None, lod="aware", infer=one_count)
def max_sequence_len(table):
    """The length of the longest sequence."""
    return table.steps.astype(jnp.int64).reshape(1)


def _with_levels(change: int) -> Infer:
    """X with ``change`` more levels."""
    return described_like("X", lambda x: x._replace(lod_level=max(x.lod_level + change, 0)))


@op("lod_tensor_to_array", inputs="X RankTable", outputs="Out", differentiable="X", lod="aware", infer=_with_levels(-1))
def lod_tensor_to_array(x, table):
    """For each step, the items of the sequences at that step, longest sequence first."""
    x = require_sequences(x, "X")
    if x.levels <= table.level:
        raise ValueError(f"X has {x.levels} levels, but the rank table is of level {table.level}")
    view = level_view(x, table.level)
    if view.sequences != table.width:
        raise ValueError(f"X has {view.sequences} sequences, but the rank table {table.width}")
    order = table.order if view.shape[0] == table.order.batch.shape[0] else BatchOrder.of(view)
    inner = x.offsets[len(view.offsets) :]
    items = Ragged(x.data, inner, x.longest) if inner else x.data
    real = jnp.arange(order.packed.shape[0]) < order.starts[-1]
    return Steps(pick_items(items, order.packed, real), order.starts, table.steps, table.width)


@op(
    "array_to_lod_tensor",
    inputs="X RankTable",
    outputs="Out",
    differentiable="X",
    lod="aware",
    infer=_with_levels(1),
    host="loop_array",
)
def array_to_lod_tensor(x, table):
    """The inverse of `lod_tensor_to_array`: the steps in an array as sequences."""
    steps = x if isinstance(x, Steps) else Steps.of_list(x, table.width)
    packed = pick_items(steps.items, table.order.batch, table.order.real)
    if isinstance(packed, Ragged):
        return Ragged(packed.data, (*table.offsets, *packed.offsets), packed.longest, table.hidden)
    return Ragged(packed, table.offsets, table.longest, table.hidden)


@op("reorder_lod_tensor_by_rank", inputs="X RankTable", outputs="Out", differentiable="X", lod="aware", infer=_like_x)
def reorder_lod_tensor_by_rank(x, table):
    """The rows of X, or its sequences, in the order of the table."""
    if item_room(x) < table.width:
        kind = "sequences" if isinstance(x, Ragged) and x.levels else "rows"
        raise ValueError(f"X has {item_room(x)} {kind}, but the rank table {table.width}")
    lanes = table.order.lanes.astype(jnp.int32)
    if not isinstance(x, Ragged):
        return x[lanes]
    count = x.offsets[x.hidden - 1][-1] if x.hidden else table.width
    picked = pick_items(x, lanes, jnp.arange(table.width) < count)
    return Ragged(plain(picked), (*x.offsets[: x.hidden], *getattr(picked, "offsets", ())), x.longest, x.hidden)


@op("shrink_rnn_memory", inputs="X RankTable I", outputs="Out", differentiable="X", lod="aware", infer=_like_x)
def shrink_rnn_memory(x, table, i):
    """The first rows or sequences of X: one for each sequence that is longer than i."""
    return first_items(x, table.running(plain(i).reshape(())))
