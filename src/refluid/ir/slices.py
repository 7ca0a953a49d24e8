"""Which rows of which variable a server's variable holds, as text that operators carry.

A server's programs name, on their operators, what every persistable variable of theirs is a slice of. Files of whole
variables can be read into slices, and slices gathered into whole variables, by anyone who has such a program.
"""

from __future__ import annotations

from dataclasses import dataclass

from refluid.ir.program import Program

SLICES = "slices"  # the attribute that holds them: on listen_and_serv, and on the initialisers of a server's startup


@dataclass(frozen=True)
class Slice:
    """The variable ``name``: rows ``start`` to ``end`` of the variable ``whole``, whose shape is ``whole_shape``."""

    name: str
    whole: str
    start: int
    end: int
    whole_shape: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.end - self.start

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, *self.whole_shape[1:])

    @property
    def is_whole(self) -> bool:
        return self.rows == self.whole_shape[0]

    def __str__(self) -> str:
        dims = ",".join(map(str, self.whole_shape))
        return f"{self.name}|{self.whole}|{self.start}|{self.end}|{dims}"

    @classmethod
    def parse(cls, text: str) -> Slice:
        """The slice that ``str(slice)`` described."""
        name, whole, start, end, dims = text.rsplit("|", 4)
        return cls(name, whole, int(start), int(end), tuple(map(int, dims.split(","))))


def slices_of(program: Program) -> list[Slice]:
    """What the variables of a server's main or startup program are slices of; nothing for other programs."""
    return [Slice.parse(text) for op in program.global_block().ops for text in op.attrs.get(SLICES, ())]
