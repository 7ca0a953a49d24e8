"""Builds one tensor per fed variable from the samples of a batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
        rows, lod = samples, []
        for level in range(self.lod_level):
            lod.append(list(itertools.accumulate(map(self._length, rows), initial=0)))
            if level == self.lod_level - 1 and _are_arrays(rows):
                return LoDTensor(self._shaped(self._joined(rows)), lod)
            rows = list(itertools.chain.from_iterable(rows))
        return LoDTensor(self._shaped(self._stacked(rows)), lod)

    def _length(self, sequence: Any) -> int:
        try:
            return len(sequence)
        except TypeError:
            raise self._problem(f"takes nested sequences, but found {sequence!r} in place of one") from None

    def _stacked(self, samples: Sequence[Any]) -> np.ndarray:
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


def _listed(shapes: set[tuple[int, ...]]) -> str:
    listed = [str(list(shape)) for shape in sorted(shapes)]
    return " and ".join(listed[:2]) + (" and others" if len(listed) > 2 else "")
