"""Services of the lowering for rules that need more than arrays and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class RunBlock(Protocol):
    """Runs the blocks of a control-flow op; passed to a rule as its ``run_block`` parameter.

    Blocks are opaque to the rule: it takes them from an attribute and passes them to the service.
    """

    @property
    def on_host(self) -> bool:
        """Whether values are concrete and may decide what runs."""
        ...

    def names(self, slot: str) -> list[str]:
        """The names of the values in a slot, as the blocks refer to them."""
        ...

    def __call__(self, sub_block: Any, env: dict[str, Any], iteration: Any = 0, /) -> dict[str, Any]:
        """The variables after a run of ``sub_block``; each ``iteration`` draws its own random numbers."""
        ...

    def loop(self, env: dict[str, Any], names: list[str], test: str) -> dict[str, Any] | None:
        """The values of ``names`` after a loop, or None if the lowering has no special form for it."""
        ...

    def refuse_padding(self) -> None:
        """Makes the program run without padding, because the op returns rows that may be padding."""
        ...


class Host(Protocol):
    """The context of an op on the host; passed to a rule as its ``host`` parameter."""

    @property
    def place(self) -> Any:
        """Where the program runs."""
        ...

    @property
    def caller(self) -> object:
        """Identifies the use of the op in a program; the same object in every step."""
        ...

    def names(self, slot: str) -> list[str]:
        """The names of the variables in a slot."""
        ...

    def write(self, values: Sequence[Any], path: str, overwrite: bool, as_half: bool) -> None:
        """Writes the op's inputs to a file."""
        ...

    def read(self, path: str, as_half: bool) -> list[Any]:
        """Reads values for the op's outputs from a file."""
        ...

    def join(self, endpoints: tuple[str, ...], rank: int) -> None:
        """Joins this process, number ``rank``, with those at the other endpoints; once for the life of the process."""
        ...
