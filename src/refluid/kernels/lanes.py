"""How a kernel walks through packed sequences: `Lanes` describes it to the kernel, which reads it with `walk`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.kernels.frame import integers
from refluid.kernels.products import fast

_WORTH_A_THREAD = 1 << 19  # multiplications; about the time that waking a thread takes


@partial(
    jax.tree_util.register_dataclass, data_fields=["walk", "begins", "owners"], meta_fields=["is_reverse", "count"]
)
@dataclass(frozen=True)
class Lanes:
    """Sequences as recurrences see them.

    walk: what kernels read: the sequences, longest first; for each sequence the row it begins with, and its length;
    and the distance from one step to the next and the number of real rows.
    begins: for each packed row, whether a sequence begins with it. owners: for each packed row, its sequence.
    """

    walk: tuple[Any, ...]
    begins: Any
    owners: Any
    is_reverse: bool
    count: int

    @classmethod
    def of(cls, sequences: Any, is_reverse: bool) -> Lanes:
        """The lanes of packed sequences (`refluid.ops.core.values.Ragged`)."""
        # Invalid computed offsets are reported after the step; until then, they must not cause out-of-bounds access.
        offsets = lax.cummax(jnp.clip(sequences.offsets[-1], 0, sequences.shape[0]))
        lengths = offsets[1:] - offsets[:-1]
        positions, owners = sequences.positions(), jnp.minimum(sequences.owners(), sequences.sequences - 1)
        if is_reverse:
            first, begins = offsets[1:] - 1, positions == lengths[owners] - 1
        else:
            first, begins = offsets[:-1], positions == 0
        ends = jnp.stack([jnp.full_like(offsets[-1], -1 if is_reverse else 1), offsets[-1]])
        walk = jnp.argsort(-lengths, stable=True), first, lengths, ends
        return cls(tuple(x.astype(jnp.int64) for x in walk), begins, owners, is_reverse, sequences.sequences)

    def before(self, rows: Any, initial: Any) -> Any:
        """For each row, the row of the step before, or of ``initial`` in the first step."""
        shifted = jnp.roll(rows, -1 if self.is_reverse else 1, axis=0)
        return jnp.where(self.begins[:, None], initial[self.owners], shifted)

    def parts(self, multiplications: int) -> int:
        """How many threads are worthwhile; four sequences are multiplied at once."""
        return max(1, min(-(-self.count // 4), multiplications // _WORTH_A_THREAD))


def weight_gradient(rows: Any, d_products: Any) -> Any:
    """The gradient of a matrix that all ``rows`` were multiplied by."""
    return lax.dot_general(rows, d_products, (((0,), (0,)), ((), ())))


@fast
def walk(frame, part, parts):
    """Reads what one part of a kernel walks through from the first four arguments; see `Lanes.walk`.

    Returns the sequences of this part, longest first; of each the row it begins with, and its length; the distance from
    one step to the next; and how many rows are real.
    """
    lanes, first, lengths, ends = integers(frame, 0), integers(frame, 1), integers(frame, 2), integers(frame, 3)
    number = (len(lanes) - part + parts - 1) // parts
    mine, begins, steps = np.empty(number, np.int64), np.empty(number, np.int64), np.empty(number, np.int64)
    for i in range(number):
        lane = lanes[part + i * parts]
        mine[i], begins[i], steps[i] = lane, first[lane], lengths[lane]
    return mine, begins, steps, ends[0], ends[1]


@fast
def narrowed(running, lengths, time):
    """How many of the first ``running`` sequences reach step ``time``."""
    while lengths[running - 1] <= time:
        running -= 1
    return running


@fast
def widened(running, lengths, time):
    """How many sequences reach step ``time``; at least ``running`` do."""
    while running < len(lengths) and lengths[running] > time:
        running += 1
    return running


@fast
def state_before(time, states, row, stride, initial, lane):
    """Where the state before a row is: a matrix and the number of its row."""
    if time == 0:
        return initial, lane
    return states, row - stride
