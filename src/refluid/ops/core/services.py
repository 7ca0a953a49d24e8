"""What the lowering offers to rules that need more than arrays and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class RunBlock(Protocol):
    """Runs the blocks of a control-flow op; a rule gets it as its ``run_block`` parameter.

    Blocks are opaque to the rule: they come from an attribute and go back to the service.
    """

    @property
    def on_host(self) -> bool:
        """Whether values are concrete and may decide what runs."""
        ...

    def names(self, slot: str) -> list[str]:
        """The names of the values in a slot, as the blocks know them."""
        ...

    def __call__(self, sub_block: Any, env: dict[str, Any], iteration: Any = 0, /) -> dict[str, Any]:
        """The variables after a run of ``sub_block``; each ``iteration`` draws its own random numbers."""
        ...

    def loop(self, env: dict[str, Any], names: list[str], test: str) -> dict[str, Any] | None:
        """What a loop leaves in ``names``, if the lowering knows a better form for it than `lax.while_loop`."""
        ...

    def refuse_padding(self) -> None:
        """Makes the program run without padding: the op gives out rows that may be padding."""
        ...


class Host(Protocol):
    """What an op on the host may use besides its inputs; a rule gets it as its ``host`` parameter."""

    @property
    def place(self) -> Any:
        """Where the program runs."""
        ...

    @property
    def caller(self) -> object:
        """Stands for the use of the op in a program: the same one in every step."""
        ...

    def names(self, slot: str) -> list[str]:
        """The names of the variables in a slot."""
        ...

    def write(self, values: Sequence[Any], path: str, overwrite: bool, as_half: bool) -> None:
        """Writes the op's inputs into a file."""
        ...

    def read(self, path: str, as_half: bool) -> list[Any]:
        """Values for the op's outputs, from a file."""
        ...
