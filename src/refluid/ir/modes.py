"""The training modes: when a trainer pushes, and which parameters it continues with.

| mode       | a trainer pushes         | the server applies       | a trainer continues with                        |
|------------|--------------------------|--------------------------|-------------------------------------------------|
| SYNC       | every step               | when all have pushed     | the parameters after that update                |
| HALF_ASYNC | every n steps, merged    | each push as it arrives  | the parameters after its own push               |
| ASYNC      | from a queue, merged     | each push as it arrives  | the parameters pulled last (bounded staleness)  |
| GEO        | deltas, every k steps    | each push, by adding     | its own parameters plus the changes of others   |
"""

from __future__ import annotations

from enum import IntEnum

DELTA = ".delta"  # GEO: a server receives the deltas of the slice "w" in the variable "w.delta"
TRAINER_ID = "@TRAINER_ID@"  # dc_asgd: the trainer that computed a gradient, which selects its copy of the parameters


class Mode(IntEnum):
    """How trainers and servers work together; operators carry the number as ``distributed_mode``."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3
