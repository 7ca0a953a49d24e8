"""Batches: the arrays and LoD tensors that some records become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from refluid.alignment import ALIGNMENT
from refluid.datasets.records import Records
from refluid.datasets.schema import Slot
from refluid.tensors import LoDTensor


def split(chunks: Iterable[Records], size: int, *, drop_last: bool = False) -> Iterator[Records]:
    """Cuts a stream of records into batches, which may cross chunks; the last one may be smaller."""
    waiting: list[Records] = []
    count = 0
    for records in chunks:
        start = 0
        while count + len(records) - start >= size:
            stop = start + size - count
            yield Records.join(records.schema, [*waiting, records[start:stop]])
            waiting, count, start = [], 0, stop
        if start < len(records):
            waiting.append(records[start:])
            count += len(records) - start
    if waiting and not drop_last:
        yield Records.join(waiting[0].schema, waiting)


def feed_of(records: Records) -> dict[str, Any]:
    """The feed of a batch: a LoD tensor for each sequence slot, an array for each dense one."""
    from refluid.datasets.kernels import records as kernels  # loads numba: slow

    schema = records.schema
    places = np.ascontiguousarray(records.places)
    offsets = np.empty((len(schema), len(places) + 1), np.int64)
    values = np.empty(len(places), np.int64)
    kernels.count(places, schema.kinds, offsets, values)
    arrays, addresses = _allocate([slot.dtype for slot in schema.slots], offsets[:, -1].tolist())
    kernels.gather(places, values, schema.kinds, offsets, addresses)
    levels = offsets.astype(np.int32)  # as steps take them
    return {
        slot.name: _dense(slot, array) if slot.dense else LoDTensor.of(array.reshape(-1, 1), (level,))
        for slot, array, level in zip(schema.slots, arrays, levels, strict=True)
        if not slot.is_word
    }


def _dense(slot: Slot, array: np.ndarray) -> np.ndarray:
    if -1 in slot.shape or array.size == slot.width:
        return array.reshape(slot.shape)
    raise ValueError(
        f"{slot.name} has the shape {list(slot.shape)}, and a batch brings {array.size} values: "
        "give the variable a dim of -1 for the batch"
    )


def _allocate(dtypes: list[np.dtype], sizes: list[int]) -> tuple[list[np.ndarray], np.ndarray]:
    """Aligned arrays of these dtypes and sizes, in one piece of memory, and their addresses."""
    lengths = [dtype.itemsize * size for dtype, size in zip(dtypes, sizes, strict=True)]
    starts = np.cumsum([0, *(-(-length // ALIGNMENT) * ALIGNMENT for length in lengths)])
    memory = np.empty(int(starts[-1]) + ALIGNMENT, np.uint8)
    starts += -memory.ctypes.data % ALIGNMENT
    arrays = [
        memory[start : start + length].view(dtype)
        for start, length, dtype in zip(starts.tolist(), lengths, dtypes, strict=False)  # the last start is the end
    ]
    return arrays, starts[:-1] + memory.ctypes.data
