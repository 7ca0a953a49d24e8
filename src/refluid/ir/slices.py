"""Slices: contiguous ranges of rows of a variable, each a variable of its own on one server.

A server's programs list, on their operators, the slice that every persistable variable of theirs holds. Anyone who has
such a program can read files of whole variables into slices, and join slices into whole variables.

A table that grows has no number of rows: its rows have any 64-bit ids and belong to one of `SHARDS` shards, by the hash
of their id. Its slices are ranges of shards.
"""

from __future__ import annotations

from dataclasses import dataclass

from refluid.ir.program import Program
from refluid.ops.core.growing import NO_ROW, ROW_INITIALIZERS, SHARDS

__all__ = ["NO_ROW", "ROW_INITIALIZERS", "SHARDS", "SLICES", "Slice", "slices_of"]

SLICES = "slices"  # the attribute that lists them: on listen_and_serv, and on the initialisers of a server's startup


@dataclass(frozen=True)
class Slice:
    """The variable ``name``: rows ``start`` to ``end`` of the variable ``whole``, whose shape is ``whole_shape``.

    If ``whole`` is a table that grows, the first dim of its shape is -1, and ``start`` and ``end`` are shards.
    """

    name: str
    whole: str
    start: int
    end: int
    whole_shape: tuple[int, ...]
    endpoint: str = ""  # the server that holds it; not part of the text form, as a program belongs to one server

    @property
    def rows(self) -> int:
        return self.end - self.start

    @property
    def grows(self) -> bool:
        return self.whole_shape[:1] == (-1,)

    @property
    def shape(self) -> tuple[int, ...]:
        return (-1 if self.grows else self.rows, *self.whole_shape[1:]) if self.whole_shape else ()

    @property
    def is_whole(self) -> bool:
        return self.rows == (SHARDS if self.grows else self.whole_shape[0])

    def __str__(self) -> str:
        dims = ",".join(map(str, self.whole_shape))
        return f"{self.name}|{self.whole}|{self.start}|{self.end}|{dims}"

    @classmethod
    def parse(cls, text: str, endpoint: str = "") -> Slice:
        """Reads what ``str(slice)`` wrote."""
        name, whole, start, end, dims = text.rsplit("|", 4)
        return cls(name, whole, int(start), int(end), tuple(map(int, dims.split(","))), endpoint)


def slices_of(program: Program, endpoint: str = "") -> list[Slice]:
    """The slices that the main or startup program of the server at ``endpoint`` holds; none for other programs."""
    return [Slice.parse(text, endpoint) for op in program.global_block().ops for text in op.attrs.get(SLICES, ())]
