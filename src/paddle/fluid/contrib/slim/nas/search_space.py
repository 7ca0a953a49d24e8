"""What an architecture search chooses from."""

from __future__ import annotations

from typing import Any

__all__ = ["SearchSpace"]


class SearchSpace:
    """Networks described by tokens; subclasses say what each token means."""

    def init_tokens(self) -> list[int]:
        """The tokens to start from."""
        raise NotImplementedError("a SearchSpace says what tokens to start from")

    def range_table(self) -> list[int]:
        """How many values each token may have."""
        raise NotImplementedError("a SearchSpace says how many values each token may have")

    def create_net(self, tokens: list[int]) -> Any:
        """The programs, and what to feed and fetch, of the network that the tokens describe."""
        raise NotImplementedError("a SearchSpace builds the network that tokens describe")
