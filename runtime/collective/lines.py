"""Messages between the ranks of a job: one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]
LONGEST = 1 << 24  # bytes; a line without end is nothing of ours


def encode(message: Message) -> bytes:
    """The line of a message."""
    return json.dumps(message).encode() + b"\n"


class Lines:
    """Puts received bytes together into messages."""

    def __init__(self, longest: int = LONGEST) -> None:
        self.longest = longest
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that end in ``data``.

        Raises:
          ValueError: the bytes are no messages.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if max(map(len, (self._rest, *lines))) > self.longest:
            raise ValueError(f"a message is longer than {self.longest} bytes")
        for line in lines:
            try:
                message = json.loads(line)
            except RecursionError:
                raise ValueError("a message is nested too deeply") from None
            if not isinstance(message, dict):
                raise ValueError("a message is not an object")
            yield message
