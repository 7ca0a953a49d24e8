"""Readers of a program that shuffle or join what another reader reads, and one of random numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from refluid.readers.generators import Batches, SourceReader, WrappingGenerated
from refluid.readers.making import makes
from refluid.readers.reader import Batch, Reader
from refluid.tensors import LoDTensor


@makes("create_shuffle_reader")
class ShuffleReader(WrappingGenerated):
    """Reads ``buffer_size`` batches at a time and yields them in random order."""

    def __init__(self, wrapped: Reader, buffer_size: int):
        super().__init__(wrapped)
        self._buffer_size = _at_least_one("shuffle", "buffer_size", buffer_size)
        self._random: np.random.Generator | None = None  # goes on from pass to pass: each has another order

    def batches(self) -> Batches:
        if self._random is None:
            self._random = self.random()
        below = self.below()
        while window := list(itertools.islice(below, self._buffer_size)):
            for i in self._random.permutation(len(window)):
                yield window[i]


@makes("create_batch_reader")
class BatchReader(WrappingGenerated):
    """Joins ``batch_size`` batches, mostly of one sample each, to one."""

    def __init__(self, wrapped: Reader, batch_size: int, discard_leftover: bool = True):
        super().__init__(wrapped)
        self._batch_size = _at_least_one("batch", "batch_size", batch_size)
        self._discard_leftover = discard_leftover

    def batches(self) -> Batches:
        below = self.below()
        while group := list(itertools.islice(below, self._batch_size)):
            if len(group) == self._batch_size or not self._discard_leftover:
                yield self._joined(group)

    def _joined(self, group: Sequence[Batch]) -> Batch:
        counts = {len(batch) for batch in group}
        if len(counts) > 1:
            raise ValueError(f"{self.name}: batches of {min(counts)} and of {max(counts)} values cannot be joined")
        return [self._join(place, values) for place, values in enumerate(zip(*group, strict=True))]

    def _join(self, place: int, values: Sequence[Any]) -> Any:
        arrays = [np.asarray(value.value if isinstance(value, LoDTensor) else value) for value in values]
        lods = [value.lod() if isinstance(value, LoDTensor) else [] for value in values]
        forms = {(array.dtype.name, array.shape[1:], len(lod)) for array, lod in zip(arrays, lods, strict=True)}
        if len(forms) > 1 or not arrays[0].ndim:
            shown = " and ".join(f"{a.dtype}{list(a.shape)} of LoD level {len(b)}" for a, b in _examples(arrays, lods))
            raise ValueError(f"{self.name}: value {place} differs between the batches to join: {shown}")
        levels = [_joined_offsets([lod[level] for lod in lods]) for level in range(len(lods[0]))]
        joined = np.concatenate(arrays)
        return LoDTensor(joined, levels) if levels else joined


@makes("create_random_data_generator")
class RandomDataReader(SourceReader):
    """Yields uniform random numbers without end."""

    def __init__(self, low: float, high: float, shape_concat: Sequence[int], ranks: Sequence[int], **described: Any):
        super().__init__()
        dims = iter(shape_concat)
        self._low, self._high = low, high
        self._shapes = [tuple(itertools.islice(dims, rank)) for rank in ranks]

    def batches(self) -> Batches:
        random = self.random()
        while True:
            yield [random.uniform(self._low, self._high, shape).astype(np.float32) for shape in self._shapes]


def _at_least_one(layer: str, argument: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{layer}: {argument} must be at least 1, not {value}")
    return value


def _joined_offsets(levels: Sequence[Sequence[int]]) -> list[int]:
    offsets = [0]
    for level in levels:
        offsets += [offsets[-1] + offset for offset in level[1:]]
    return offsets


def _examples(arrays: Sequence[np.ndarray], lods: Sequence[Any]) -> list[Any]:
    """Two values that differ in form."""
    pairs = list(zip(arrays, lods, strict=True))
    first = pairs[0]
    form = (first[0].dtype, first[0].shape[1:], len(first[1]))
    return [first, *(p for p in pairs if (p[0].dtype, p[0].shape[1:], len(p[1])) != form)][:2]
