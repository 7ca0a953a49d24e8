"""Batches: the arrays and LoD tensors that some records become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from refluid.datasets.records import Records
from refluid.datasets.schema import Slot
from refluid.tensors import LoDTensor

_ALIGNMENT = 64  # of arrays that XLA reads in place


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
    arrays = _allocate([(slot.dtype, int(row[-1])) for slot, row in zip(schema.slots, offsets, strict=True)])
    outs = np.array([array.ctypes.data for array in arrays], np.int64)
    kernels.gather(places, values, schema.kinds, offsets, outs)
    return {
        slot.name: _dense(slot, array) if slot.dense else LoDTensor.of(array.reshape(-1, 1), (row,))
        for slot, array, row in zip(schema.slots, arrays, offsets, strict=True)
    }


def _dense(slot: Slot, array: np.ndarray) -> np.ndarray:
    if -1 in slot.shape or array.size == slot.width:
        return array.reshape(slot.shape)
    raise ValueError(
        f"{slot.name} has the shape {list(slot.shape)}, and a batch brings {array.size} values: "
        "give the variable a dim of -1 for the batch"
    )


def _allocate(wanted: list[tuple[np.dtype, int]]) -> list[np.ndarray]:
    """Aligned arrays of these dtypes and sizes, in one piece of memory."""
    starts, total = [], _ALIGNMENT
    for dtype, size in wanted:
        starts.append(total)
        total += -(-dtype.itemsize * size // _ALIGNMENT) * _ALIGNMENT
    memory = np.empty(total, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT - _ALIGNMENT
    return [
        memory[first + start : first + start + dtype.itemsize * size].view(dtype)
        for start, (dtype, size) in zip(starts, wanted, strict=True)
    ]
