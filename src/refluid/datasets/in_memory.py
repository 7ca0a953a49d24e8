"""Records in memory: loading, shuffling and dropping them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from refluid.datasets.meter import Meter
from refluid.datasets.records import Records
from refluid.datasets.schema import Schema
from refluid.datasets.sources import AnySource
from refluid.datasets.streams import RecordStream
from refluid.datasets.text_files import TextFiles


def load(files: Sequence[AnySource], schema: Schema, texts: TextFiles, threads: int) -> Records:
    """All records of the files, ``threads`` of which are read at once."""
    stream = RecordStream(files, threads, partial(texts.read, meter=Meter()))
    try:
        return Records.join(schema, list(stream))
    finally:
        stream.close()


def shuffle(records: Records) -> Records:
    """The records in random order, which follows NumPy's global seed."""
    places = records.places.copy()
    _generator().shuffle(places)
    return Records(records.schema, places, records.blocks)


def shuffle_slots(records: Records, names: Sequence[str]) -> Records:
    """Records whose values of these slots are those of another record, chosen at random; others stay as they are."""
    from refluid.datasets.kernels import records as kernels  # loads numba: slow

    kinds, places = records.schema.kinds, np.ascontiguousarray(records.places)
    chosen = np.array([slot.name in names for slot in records.schema.slots], np.int64)
    block = np.empty(kernels.measure(places, kinds, np.empty_like(places)), np.uint8)
    new_places = np.empty_like(places)
    kernels.mix(places, _generator().permutation(places), kinds, chosen, block.ctypes.data, new_places)
    return Records(records.schema, new_places, (block,))


def _generator() -> np.random.Generator:
    return np.random.default_rng(np.random.randint(np.iinfo(np.int64).max))
