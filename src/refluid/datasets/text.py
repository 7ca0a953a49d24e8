"""Parses MultiSlot text: drives the kernel, and explains what is wrong with a line."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from refluid.datasets.arena import Arena
from refluid.datasets.records import Records
from refluid.datasets.schema import Schema
from refluid.errors import MalformedLineError

_HARD_NUMBERS = 256  # that one call of the kernel leaves to Python


class TextParser:
    """Turns whole lines into records; not for several threads at once.

    Args:
      skip_malformed: leave malformed lines out and count them, instead of raising.
      drop_zeros: leave zeros out of sequence slots, as real Fluid does with data in memory.
      block_size: of the memory that records of several calls share; see `Arena`.

    Attributes:
      skipped: how many malformed lines were left out.
      longer: how many lines had more values than there are slots. Like real Fluid, it ignores what follows.
      lines: how many lines were read.
    """

    def __init__(self, schema: Schema, *, skip_malformed: bool = False, drop_zeros: bool = False, block_size: int = 0):
        from refluid.datasets.kernels import text as kernel  # loads numba: slow

        self._kernel: Any = kernel
        self._schema = schema
        self._options = kernel.SKIP_MALFORMED * skip_malformed + kernel.DROP_ZEROS * drop_zeros
        self._arena, self._places = Arena(schema, block_size), np.empty(0, np.int64)
        self._counts = np.empty(len(schema), np.int64)
        self._hard = np.empty((_HARD_NUMBERS, 3), np.int64)
        self.skipped = self.longer = self.lines = 0

    def parse(self, text: np.ndarray, file: str = "") -> Records:
        """The records of the next lines of a file: bytes, the last one a newline."""
        self.add(text, file)
        return self.take()

    def has_room(self, text: np.ndarray) -> bool:
        """Whether `add` may be called before `take`."""
        return self._arena.has_room(self._most_bytes(text))

    def add(self, text: np.ndarray, file: str = "") -> None:
        """Parses the next lines, and keeps their records until they are taken."""
        kernel, report = self._kernel, np.zeros(len(self._kernel.Report), np.int64)
        begin, p, out = text.ctypes.data, text.ctypes.data, self._arena.reserve(self._most_bytes(text))
        self._reserve_places(text)
        count = 0
        while p < begin + len(text):
            kernel.parse(
                p, begin + len(text), out, self._schema.kinds, self._schema.widths, self._schema.dense,
                self._counts, self._places[count:], self._hard, self._options, report,
            )  # fmt: skip
            p, out = int(report[kernel.Report.TEXT]), int(report[kernel.Report.RECORDS_END])
            count += int(report[kernel.Report.RECORDS])
            self.lines += int(report[kernel.Report.LINES])
            self.longer += int(report[kernel.Report.LONGER])
            self.skipped += int(report[kernel.Report.SKIPPED])
            self._read_hard_numbers(text, int(report[kernel.Report.HARD]))
            problem = report[kernel.Report.PROBLEM]
            if problem == kernel.MANY_HARD:
                if report[kernel.Report.LINES] == 0:
                    self._hard = np.empty((2 * len(self._hard), 3), np.int64)
            elif problem != kernel.FINE:
                raise self._error(text, report, file, self.lines + 1)
        self._arena.append(self._places[:count].copy(), out)

    def take(self) -> Records:
        """The records of all lines that were added since the last time."""
        return self._arena.take()

    def _most_bytes(self, text: np.ndarray) -> int:
        """The most that the records of some text take: an id takes 8 bytes, and 2 in the text."""
        return 4 * len(text) + len(self._schema) + 16

    def _reserve_places(self, text: np.ndarray) -> None:
        most = len(text) // (4 * len(self._schema)) + 2  # "1 1 " for every slot
        if len(self._places) < most:
            self._places = np.empty(most, np.int64)

    def _read_hard_numbers(self, text: np.ndarray, count: int) -> None:
        for begin, end, place in self._hard[:count].tolist():
            word = bytes(text[begin - text.ctypes.data : end - text.ctypes.data]).decode()
            self._arena.write(place, _read_float32(word).tobytes())

    def _error(self, text: np.ndarray, report: np.ndarray, file: str, line: int) -> MalformedLineError:
        kernel = self._kernel
        problem, number, place, count = (
            int(report[at])
            for at in (kernel.Report.PROBLEM, kernel.Report.SLOT, kernel.Report.PLACE, kernel.Report.DETAIL)
        )
        slot = self._schema.slots[number]
        word = _word(text, place - text.ctypes.data)
        start = int(report[kernel.Report.TEXT]) - text.ctypes.data
        shown = bytes(text[start : start + 200]).split(b"\n")[0].decode(errors="replace")
        what = {
            kernel.LINE_ENDS: "expected the number of its values, but the line ends",
            kernel.NO_COUNT: f"expected the number of its values, found {word!r}",
            kernel.ZERO_COUNT: "has 0 values; a slot needs at least one, so pad it where the line is written",
            kernel.WIDTH: f"expected a multiple of {slot.width} values, found {count}",
            kernel.FEW_VALUES: f"expected {count} values, but the line ends before",
            kernel.NO_ID: f"expected an integer, found {word!r}",
            kernel.NO_WORD: f"expected '1' and a word, found {count} and {word!r}",
            kernel.LARGE_ID: f"expected an integer of 64 bits, found {word}",
            kernel.NO_FLOAT: f"expected a number, found {word!r}",
        }[problem]
        return MalformedLineError(file, line, f"{slot}, number {number + 1} of {len(self._schema)}: {what}", shown)


def _word(text: np.ndarray, start: int) -> str:
    return (bytes(text[start : start + 60]).split() or [b""])[0].decode(errors="replace")


def _read_float32(word: str) -> np.float32:
    """The float32 that is nearest to a decimal number; `float` and then float32 would round twice."""
    value = float(word)
    with np.errstate(over="ignore", under="ignore"):
        near = np.float32(value)
        if value == 0 or not np.isfinite(value):  # a word, or an exponent that is far out
            return near
        around = (np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf)))
    exact = Fraction(word)
    return min(around, key=lambda x: (abs(_exactly(x) - exact), int(x.view(np.uint32)) & 1))


def _exactly(x: np.float32) -> Fraction:
    """A float32 as a fraction; infinity is what would follow the largest number."""
    return Fraction(float(x)) if np.isfinite(x) else Fraction(int(np.sign(x)) << 128)
