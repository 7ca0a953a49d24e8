"""The training modes: when a push is due, and what a pull may see.

| mode       | a trainer pushes            | the server applies         | a trainer continues with              |
|------------|-----------------------------|----------------------------|---------------------------------------|
| SYNC       | every step                  | when all have pushed       | the parameters after that update      |
| HALF_ASYNC | every n steps, merged       | what arrives               | the parameters after its own push     |
| ASYNC      | from a queue, merged        | what arrives               | what a thread pulled last (bounded)   |
| GEO        | differences, every k steps  | what arrives, added        | its own, plus what others changed     |
"""

from __future__ import annotations

from enum import IntEnum


class Mode(IntEnum):
    """How trainers and servers work together; the numbers stand in programs."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3
