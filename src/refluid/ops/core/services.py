"""What the lowering offers to rules that need more than arrays and attributes."""

from __future__ import annotations

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

    def __call__(self, block: Any, env: dict[str, Any], iteration: Any = 0) -> dict[str, Any]:
        """The variables after a run of ``block``; each ``iteration`` draws its own random numbers."""
        ...

    def loop(self, env: dict[str, Any], names: list[str], test: str) -> dict[str, Any] | None:
        """What a loop leaves in ``names``, if the lowering knows a better form for it than `lax.while_loop`."""
        ...

    def refuse_padding(self) -> None:
        """Makes the program run without padding: the op gives out rows that may be padding."""
        ...
