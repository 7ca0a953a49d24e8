"""Records in memory: loading, shuffling and dropping them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from refluid.datasets.records import Records
from refluid.datasets.schema import Schema
from refluid.datasets.streams import RecordStream


def load(stream: RecordStream, schema: Schema) -> Records:
    """All records of the stream, which is closed."""
    try:
        return Records.join(schema, list(stream))
    finally:
        stream.close()


def shuffle(records: Records, seed: int | None = None) -> Records:
    """The records in random order, which follows the seed, or NumPy's global one."""
    places = records.places.copy()
    np.random.default_rng(new_seed() if seed is None else seed).shuffle(places)
    return Records(records.schema, places, records.blocks)


def shuffle_slots(records: Records, names: Sequence[str]) -> Records:
    """Records whose values of these slots are those of another record, chosen at random; others stay as they are."""
    from refluid.datasets.kernels import records as kernels  # loads numba: slow

    kinds, places = records.schema.kinds, np.ascontiguousarray(records.places)
    chosen = np.array([slot.name in names for slot in records.schema.slots], np.int64)
    block = np.empty(kernels.measure(places, kinds, np.empty_like(places)), np.uint8)
    new_places = np.empty_like(places)
    kernels.mix(
        places, np.random.default_rng(new_seed()).permutation(places), kinds, chosen, block.ctypes.data, new_places
    )
    return Records(records.schema, new_places, (block,))


def merge_lines(records: Records, size: int) -> Records:
    """One record for every ``size`` records with the same line id; others are left out.

    The records of a line id must have values for different sequence slots, or they are left out as well. Dense slots
    are those of the last record.
    """
    from refluid.datasets.kernels import records as kernels  # loads numba: slow

    keys = records.keys()
    assert keys is not None
    order = np.argsort(keys, kind="stable")
    _, counts = np.unique(keys, return_counts=True)
    places = records.places[order][np.repeat(counts == size, counts)]
    starts = np.arange(0, len(places) + 1, size)
    schema = records.schema
    block = np.empty(kernels.measure(places, schema.kinds, np.empty_like(places)), np.uint8)
    takes_last = np.array([slot.dense or slot.is_word for slot in schema.slots], np.int64)
    merged = np.empty(len(starts) - 1, np.int64)
    count = kernels.merge(places, starts, schema.kinds, takes_last, block.ctypes.data, merged)
    return Records(schema, merged[:count].copy(), (block,))


def give_away(records: Records) -> Iterator[Records]:
    """The records of one block of memory after the other, each of which is free once the consumer drops it.

    Their order is the one in which they were loaded, however they were shuffled.
    """
    schema, blocks, places = records.schema, deque(records.blocks), np.sort(records.places)
    del records
    while blocks:
        begin = blocks[0].ctypes.data
        first, last = np.searchsorted(places, [begin, begin + blocks[0].nbytes])
        yield Records(schema, places[first:last], (blocks.popleft(),))


def new_seed() -> int:
    """A random number, which follows NumPy's global seed."""
    return int(np.random.randint(np.iinfo(np.int64).max))
