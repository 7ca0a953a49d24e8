"""What readers read: generators of samples, of lists of samples or of batches, converted to batches.

A generator is a function that returns an iterable, as in Fluid, or an iterable itself: a list, or a loader of another
package.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from refluid.alignment import aligned_copy
from refluid.readers.batching import Slot
from refluid.readers.reader import Batch
from refluid.tensors import LoDTensor

Source = Callable[[int], Iterable[Batch]]  # begins a pass, and leaves out so many batches


@dataclass(frozen=True)
class Batches:
    """Converts what generators yield to batches with one value per slot."""

    slots: tuple[Slot, ...]

    def of_samples(self, generator: Any, batch_size: int, drop_last: bool) -> Source:
        """Batches of a generator of samples, of which ``batch_size`` make a batch."""
        begin = passes(generator)

        def lists() -> Iterator[list[Any]]:
            samples = map(self._sample, begin())
            while batch := list(itertools.islice(samples, batch_size)):
                if len(batch) == batch_size or not drop_last:
                    yield batch

        return lambda skip: map(self.of_list, itertools.islice(lists(), skip, None))

    def of_sample_lists(self, generator: Any) -> Source:
        """Batches of a generator of lists of samples."""
        begin = passes(generator)
        return lambda skip: map(self.of_list, itertools.islice(begin(), skip, None))

    def of_batches(self, generator: Any) -> Source:
        """Batches of a generator of batches: one array or LoDTensor per slot, in order or by name."""
        begin = passes(generator)
        return lambda skip: map(self._batch, itertools.islice(begin(), skip, None))

    def of_list(self, samples: Iterable[Any]) -> list[Any]:
        """The batch of these samples."""
        samples = list(samples)
        for count in set(map(len, samples)) - {len(self.slots)}:
            raise ValueError(f"a sample has {count} fields, but {len(self.slots)} variables are fed: {self._names()}")
        columns = zip(*samples, strict=True) if samples else itertools.repeat(())
        return [slot.value(column) for slot, column in zip(self.slots, columns, strict=False)]

    def _sample(self, sample: Any) -> Any:
        """A sample of one field need not be a tuple."""
        return sample if isinstance(sample, tuple | list) else (sample,)

    def _batch(self, batch: Any) -> list[Any]:
        if isinstance(batch, Mapping):
            return [_array(self._named(batch, slot.name)) for slot in self.slots]
        if len(self.slots) == 1 and hasattr(batch, "shape"):
            batch = [batch]
        if not isinstance(batch, Sequence) or isinstance(batch, str | bytes):
            raise TypeError(
                f"a batch must be a list, a tuple or a dict of arrays, one per variable, not {type(batch).__name__}; "
                f"the variables are {self._names()}"
            )
        if len(batch) != len(self.slots):
            raise ValueError(
                f"a batch has {len(batch)} values, but {len(self.slots)} variables are fed: {self._names()}; "
                "a generator of lists of samples (paddle.batch) goes to set_sample_list_generator"
            )
        return [_array(value) for value in batch]

    def _named(self, batch: Mapping[str, Any], name: str) -> Any:
        if name not in batch:
            raise ValueError(f"a batch has no value for {name}; it has {', '.join(map(str, batch))}")
        return batch[name]

    def _names(self) -> str:
        return ", ".join(slot.name for slot in self.slots)


def passes(generator: Any) -> Callable[[], Iterable[Any]]:
    """A function that begins a pass over what ``generator`` returns or contains."""
    if callable(generator):
        return cast(Callable[[], Iterable[Any]], generator)
    if not isinstance(generator, Iterable):
        raise TypeError(f"expected a function that returns an iterable, or an iterable, not {generator!r}")
    if not isinstance(generator, Iterator):
        return lambda: generator
    begun: list[bool] = []

    def once() -> Iterator[Any]:
        if begun:
            raise ValueError(
                f"{generator!r} was read before and can only be read once; pass the function that made it instead"
            )
        begun.append(True)
        return generator

    return once


def _array(value: Any) -> Any:
    """The value as an array that no one else changes: a generator may fill the same one again; LoDTensors stay."""
    if isinstance(value, LoDTensor):
        return value
    return np.array(value) if isinstance(value, list | tuple) else aligned_copy(value)
