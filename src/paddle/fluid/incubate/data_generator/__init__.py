"""Writers of Fluid's MultiSlot format: scripts that a dataset runs as its pipe command.

class Words(MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            yield [("words", [int(word) for word in line.split()]), ("label", [1])]
        return samples

Words().run_from_stdin()
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Number
from typing import Any

import numpy as np

__all__ = ["MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]

_EXAMPLE = "[('words', [1926, 8, 17]), ('label', [1])]"

# A sample: (name of a slot, its values) for every slot.
Sample = Sequence[tuple[str, Sequence[Any]]]


class DataGenerator:
    """Turns lines, or nothing, into samples and prints them; a subclass defines the samples and their text."""

    def __init__(self) -> None:
        self._proto_info: list[tuple[str, str]] | None = None
        self.batch_size_ = 32
        self._line_limit: int | None = None

    def _set_line_limit(self, line_limit: int) -> None:
        if not isinstance(line_limit, int):
            raise ValueError(f"line_limit must be an int, not {type(line_limit).__name__}")
        if line_limit < 1:
            raise ValueError(f"line_limit must be at least 1, not {line_limit}")
        self._line_limit = line_limit

    def set_batch(self, batch_size: int) -> None:
        """Sets how many samples `generate_batch` gets at once; 32 by default."""
        self.batch_size_ = batch_size

    def run_from_memory(self) -> None:
        """Prints the samples of ``generate_sample(None)``."""
        self._write(self.generate_sample(None)())

    def run_from_stdin(self) -> None:
        """Prints the samples of every line of stdin."""
        self._write(sample for line in sys.stdin for sample in self.generate_sample(line)())

    def generate_sample(self, line: str | None) -> Callable[[], Iterable[Sample | None]]:
        """Returns a function that generates the samples of a line; a subclass must define it. None is left out."""
        raise NotImplementedError(
            f"{type(self).__name__} must define generate_sample, whose result generates samples such as {_EXAMPLE}"
        )

    def generate_batch(self, samples: list[Sample]) -> Callable[[], Iterable[Sample]]:
        """Returns a function that generates the samples to print for some samples; by default, the same."""

        def generate() -> Iterator[Sample]:
            yield from samples

        return generate

    def _gen_str(self, line: Sample) -> str:
        raise NotImplementedError(
            f"{type(self).__name__} does not say how samples are written; derive it from MultiSlotDataGenerator"
        )

    def _write(self, samples: Iterable[Sample | None]) -> None:
        batch: list[Sample] = []
        for sample in samples:
            if sample is None:
                continue
            batch.append(sample)
            if len(batch) == self.batch_size_:
                self._write_batch(batch)
                batch = []
        if batch:
            self._write_batch(batch)

    def _write_batch(self, batch: list[Sample]) -> None:
        for sample in self.generate_batch(batch)():
            sys.stdout.write(self._gen_str(sample))


class MultiSlotStringDataGenerator(DataGenerator):
    """Prints samples whose values are strings already, without a check: fast."""

    def _gen_str(self, line: Sample) -> str:
        _check_sample(line, "[('words', ['1926', '08', '17']), ('label', ['1'])]")
        return " ".join(" ".join([str(len(values)), *values]) for _, values in line) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """Prints samples of numbers, and checks that all have the same slots."""

    def _gen_str(self, line: Sample) -> str:
        _check_sample(line, "[('words', [1926, 8, 17]), ('label', [1])]")
        if self._proto_info is None:
            for name, values in line:
                _check_slot(name, values)
            self._proto_info = [(name, "uint64") for name, _ in line]
        elif len(line) != len(self._proto_info):
            raise ValueError(
                f"all samples must have the same slots: the first has {len(self._proto_info)}, this one {len(line)}"
            )
        return " ".join([self._slot_text(index, name, values) for index, (name, values) in enumerate(line)]) + "\n"

    def _slot_text(self, index: int, name: str, values: Sequence[Any]) -> str:
        assert self._proto_info is not None
        _check_slot(name, values)
        expected, kind = self._proto_info[index]
        if name != expected:
            raise ValueError(f"all samples must have the same slots in the same order: expected {expected}, got {name}")
        for value in values:
            if not isinstance(value, Number):
                raise ValueError(f"the elements of {name} must be numbers, but there is {value!r}")
        if kind != "float" and any(isinstance(value, float | np.floating) for value in values):
            self._proto_info[index] = (name, "float")
        return f"{len(values)} {' '.join(map(str, values))}"


def _check_sample(line: Any, example: str) -> None:
    if not isinstance(line, list | tuple):
        raise ValueError(f"a sample must be a list or tuple, not {type(line).__name__}; for example {example}")


def _check_slot(name: Any, values: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(f"the name of a slot must be a str, not {name!r}")
    if not isinstance(values, list):
        raise ValueError(f"the values of slot {name} must be a list, not {type(values).__name__}")
    if not values:
        raise ValueError(f"slot {name} has no values; every slot needs at least one, such as a padding id")
