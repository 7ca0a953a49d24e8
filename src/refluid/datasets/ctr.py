"""Files of `contrib.reader.ctr_reader`, csv or svm: their lines become MultiSlot lines, and those become records.

csv    label dense,dense,... id,id,...        fields are used by number; the label is field 0
svm    label slot:id slot:id slot:id ...      slots are used by name; one without ids becomes a single 0
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, Protocol

import numpy as np

from refluid.datasets.meter import Meter
from refluid.datasets.records import Records
from refluid.datasets.schema import Schema
from refluid.datasets.sources import AnySource, open_stream, read_chunks
from refluid.datasets.text import TextParser
from refluid.errors import MalformedLineError

_MASK = (1 << 64) - 1
_COUNT_SIZE = 24  # bytes that a slot of a line takes at most, beside those of its numbers


class Format(Protocol):
    """One of the formats."""

    pattern: str

    def rearrange(self, text: np.ndarray) -> np.ndarray:
        """The lines as MultiSlot text."""
        ...


class Csv:
    """Lines of fields; ``fields`` are the numbers of those that fill the slots, in their order."""

    pattern = "label dense,dense,... id,id,..."

    def __init__(self, fields: Sequence[int]):
        self._fields = np.array(fields, np.int64)
        self._uses = int(np.bincount(self._fields).max())

    def rearrange(self, text: np.ndarray) -> np.ndarray:
        from refluid.datasets.kernels import ctr  # loads numba: slow

        out = _space(text, len(self._fields), self._uses)
        words = np.empty((int(self._fields.max()) + 1, 2), np.int64)
        begin, bad = text.ctypes.data, np.zeros(1, np.int64)
        end = ctr.from_csv(begin, begin + len(text), out.ctypes.data, self._fields, words, bad)
        if bad[0]:
            place = int(bad[0]) - begin
            raise _BadWord(place, f"expected numbers between commas, found {_word(text, place)!r}")
        return out[: end - out.ctypes.data]


class Svm:
    """Lines of slots and ids; ``slots`` are the names of those that are used, in their order. The label comes last."""

    pattern = "label slot:id slot:id ..."

    def __init__(self, slots: Sequence[str]):
        hashes = [_hash(slot) for slot in slots]
        if len(set(hashes)) != len(hashes):
            raise ValueError(f"slots must not contain a name twice: {', '.join(slots)}")
        self._hashes = np.array(sorted(hashes), np.uint64)
        self._order = np.searchsorted(self._hashes, np.array(hashes, np.uint64)).astype(np.int64)

    def rearrange(self, text: np.ndarray) -> np.ndarray:
        from refluid.datasets.kernels import ctr  # loads numba: slow

        out, begin, bad = _space(text, len(self._order) + 1), text.ctypes.data, np.zeros(1, np.int64)
        lists, words = np.empty((len(self._order), 3), np.int64), np.empty((len(text) // 2 + 1, 3), np.int64)
        end = ctr.from_svm(
            begin, begin + len(text), out.ctypes.data, self._hashes, self._order, lists, words, bad
        )  # fmt: skip
        if bad[0]:
            place = int(bad[0]) - begin
            word = _word(text, place)
            raise _BadWord(
                place, f"expected slot:id, found {word!r}" if word else "expected a label, but the line is empty"
            )
        return out[: end - out.ctypes.data]


class CtrFiles:
    """Reads files of a format, in any number of threads.

    Args:
      gzipped: whether all files are compressed, whatever their names.
    """

    def __init__(self, schema: Schema, format: Format, *, gzipped: bool):
        self._schema, self._format, self._gzipped = schema, format, gzipped

    def read(self, source: AnySource, opened: Callable[[Any], None], meter: Meter) -> Generator[Records]:
        """The records of a file, chunk by chunk; ``opened`` is told about the stream."""
        parser = TextParser(self._schema)
        with closing(open_stream(source, gzipped=self._gzipped)) as stream:
            opened(stream)
            for text in read_chunks(stream):
                before = parser.lines
                try:
                    yield parser.parse(self._format.rearrange(text), str(source))
                except MalformedLineError as error:
                    raise self._error(source, text, error.line - before, before, error.problem) from None
                except _BadWord as error:
                    line = 1 + int(np.count_nonzero(text[: error.place] == ord("\n")))
                    raise self._error(source, text, line, before, error.problem) from None

    def _error(self, source: AnySource, text: np.ndarray, line: int, before: int, problem: str) -> ValueError:
        shown = bytes(text).split(b"\n", line)[line - 1][:200].decode(errors="replace")
        return ValueError(
            f"{source}, line {before + line}: {problem}\n  the line    {shown}\n  expected    {self._format.pattern}"
        )


class _BadWord(Exception):
    """A word that is not what it should be, at a place in the text."""

    def __init__(self, place: int, problem: str):
        self.place, self.problem = place, problem


def _word(text: np.ndarray, place: int) -> str:
    return (bytes(text[place : place + 60]).split(b"\n")[0].split() or [b""])[0].decode(errors="replace")


def _space(text: np.ndarray, slots: int, uses: int = 1) -> np.ndarray:
    """Space for any MultiSlot lines that the text may become."""
    lines = int(np.count_nonzero(text == ord("\n")))
    return np.empty(uses * len(text) + lines * (slots * _COUNT_SIZE + 1), np.uint8)


def _hash(name: str) -> int:
    """FNV-1a, as the kernel computes it."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & _MASK
    return value
