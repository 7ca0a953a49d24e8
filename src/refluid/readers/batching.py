"""Builds one tensor per fed variable from the samples of a batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refluid.alignment import COPIED_AT_ONCE, aligned
from refluid.tensors import LoDTensor


@dataclass(frozen=True)
class Slot:
    """What a fed variable expects. -1 is an unknown dim; with ``lod_level`` a sample is a nested list of rows."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    lod_level: int = 0

    def value(self, samples: Sequence[Any]) -> np.ndarray | LoDTensor:
        """What is fed for a batch: the samples stacked, or their rows concatenated with the lengths recorded."""
        if not self.lod_level:
            return self._shaped(self._stacked(samples))
        rows, levels = samples, []
        for level in range(self.lod_level):
            levels.append(self._offsets(rows))
            is_last = level == self.lod_level - 1
            if is_last and _are_arrays(rows):
                return LoDTensor.of(self._shaped(self._joined(rows)), tuple(levels))
            if is_last and _hold_numbers(rows):
                numbers = self._numbers(rows, int(levels[-1][-1]))
                return LoDTensor.of(self._shaped(numbers), tuple(levels))
            rows = list(itertools.chain.from_iterable(rows))
        return LoDTensor.of(self._shaped(self._stacked(rows)), tuple(levels))

    def _offsets(self, sequences: Sequence[Any]) -> np.ndarray:
        offsets = np.zeros(len(sequences) + 1, np.int32)
        try:
            np.cumsum(np.fromiter(map(len, sequences), np.int32, len(sequences)), out=offsets[1:])
        except TypeError:
            wrong = next(each for each in sequences if not hasattr(each, "__len__"))
            raise self._problem(f"takes nested sequences, but found {wrong!r} in place of one") from None
        return offsets

    def _stacked(self, samples: Sequence[Any]) -> np.ndarray:
        if _hold_numbers(samples):
            sizes = {*map(len, samples)}
            if len(sizes) == 1:
                (size,) = sizes
                return self._numbers(samples, len(samples) * size).reshape(len(samples), size)
        return self._stacked_arrays(samples) if _are_arrays(samples) else self._converted(samples)

    def _stacked_arrays(self, samples: Sequence[np.ndarray]) -> np.ndarray:
        shape = len(samples), *samples[0].shape
        if math.prod(shape) * self.dtype.itemsize < COPIED_AT_ONCE or len({sample.shape for sample in samples}) > 1:
            return self._converted(samples)
        return np.stack(samples, out=aligned(shape, self.dtype), casting="unsafe")

    def _numbers(self, sequences: Sequence[Sequence[Any]], count: int) -> np.ndarray:
        """The numbers in several sequences, one after the other."""
        try:
            return np.fromiter(itertools.chain.from_iterable(sequences), self.dtype, count)
        except (ValueError, TypeError):  # something else is among them
            return self._converted(list(itertools.chain.from_iterable(sequences)))

    def _converted(self, samples: Sequence[Any]) -> np.ndarray:
        try:
            return np.array(samples, dtype=self.dtype)
        except (ValueError, TypeError) as error:
            found = {sample.shape for sample in samples if isinstance(sample, np.ndarray)}
            if len(found) > 1:
                raise self._problem(f"got samples of different shapes, {_listed(found)}") from None
            raise self._problem(f"does not take these samples: {error}") from None

    def _joined(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        try:
            return np.concatenate(sequences, dtype=self.dtype, casting="unsafe")
        except ValueError:
            found = {sequence.shape for sequence in sequences}
            raise self._problem(f"got sequences whose rows differ in shape, {_listed(found)}") from None

    def _shaped(self, array: np.ndarray) -> np.ndarray:
        """Fluid accepts samples with another number of dims than declared, as long as the sizes match."""
        if array.ndim == len(self.shape) or sum(dim < 0 for dim in self.shape) > 1:
            return array
        try:
            return array.reshape(self.shape)
        except ValueError:
            raise self._problem(f"cannot take a batch of shape {list(array.shape)}") from None

    def _problem(self, problem: str) -> ValueError:
        lod = f", lod_level {self.lod_level}" if self.lod_level else ""
        declared = f"{self.dtype}{list(self.shape)}{lod}"
        return ValueError(f"the variable {self.name} {problem}\n  declared  {declared}")


def _are_arrays(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, np.ndarray) for value in values)


def _hold_numbers(sequences: Sequence[Any]) -> bool:
    """Whether these are lists or tuples that seem to hold plain numbers; then there is a faster way than np.array."""
    if not sequences or not {*map(type, sequences)} <= {list, tuple}:
        return False
    first = next(filter(None, sequences), None)
    return first is not None and isinstance(first[0], int | float | np.number)


def _listed(shapes: set[tuple[int, ...]]) -> str:
    listed = [str(list(shape)) for shape in sorted(shapes)]
    return " and ".join(listed[:2]) + (" and others" if len(listed) > 2 else "")
