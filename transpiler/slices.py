"""Decides how a variable is cut into slices of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from refluid.ir.slices import SHARDS, Slice


def count_slices(shape: Sequence[int], servers: int, min_block_size: int) -> int:
    """The number of slices of a variable: one per server, but none smaller than ``min_block_size`` elements."""
    elements = math.prod(shape)
    return max(1, min(servers, elements // min_block_size, shape[0]))


def cut_rows(rows: int, parts: int) -> list[tuple[int, int]]:
    """Cuts ``rows`` into ``parts`` consecutive ranges, whose sizes differ by one row at most."""
    bounds = [rows * part // parts for part in range(parts + 1)]
    return list(pairwise(bounds))


def slice_variable(name: str, shape: Sequence[int], parts: int) -> tuple[Slice, ...]:
    """The slices of a variable: ``name.block0``, ``name.block1``, ...; an unsliced variable keeps its name."""
    return tuple(
        Slice(slice_name(name, index, parts), name, start, end, tuple(shape))
        for index, (start, end) in enumerate(cut_rows(shape[0], parts))
    )


def share_out(name: str, width: Sequence[int], endpoints: Sequence[str]) -> tuple[Slice, ...]:
    """The slices of a table that grows: every server gets as many shards."""
    if len(endpoints) > SHARDS:
        raise ValueError(f"table {name} can be shared out to {SHARDS} servers at most, not to {len(endpoints)}")
    return tuple(
        Slice(slice_name(name, index, len(endpoints)), name, start, end, (-1, *width), endpoint)
        for index, ((start, end), endpoint) in enumerate(zip(cut_rows(SHARDS, len(endpoints)), endpoints, strict=True))
    )


def slice_name(name: str, index: int, parts: int) -> str:
    return name if parts == 1 else f"{name}.block{index}"
