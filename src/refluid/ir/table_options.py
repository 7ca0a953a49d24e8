"""Options of a table that grows: which ids get rows, when rows are given up, how much memory they may take.

A program records them as an attribute, `TABLE_OPTIONS`, of the operators that look rows up; the program of a server on
listen_and_serv.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

TABLE_OPTIONS = "table_options"
PRECISIONS = ("native", "bfloat16", "float16")
ON_FULL = ("refuse", "evict", "grow")
MOST_COUNTED = 255  # servers count ids without rows in bytes


@dataclass(frozen=True)
class TableOptions:
    """What `refluid.table_options` documents."""

    min_count: int = 1
    probability: float = 1.0
    precision: str = "native"
    wire: str = "native"
    budget: int = 0
    trainer_budget: int = 1 << 30
    on_full: str = "refuse"
    max_age: int = 0
    min_norm: float = 0.0
    keep_count: float = 0.0
    count_decay: float = 1.0
    shrink_every: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("min_count", 1, MOST_COUNTED),
            ("probability", 0.0, 1.0),
            ("budget", 0, None),
            ("trainer_budget", 0, None),
            ("max_age", 0, None),
            ("min_norm", 0.0, None),
            ("keep_count", 0.0, None),
            ("count_decay", 0.0, 1.0),
            ("shrink_every", 0, None),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int if isinstance(low, int) else int | float):
                raise TypeError(f"table_options: {name} must be {_kind(low)}, not {value!r}")
            if value < low or (high is not None and value > high):
                bounds = f"at least {low}" if high is None else f"between {low} and {high}"
                raise ValueError(f"table_options: {name} must be {bounds}, not {value!r}")
        for name, choices in (("precision", PRECISIONS), ("wire", PRECISIONS), ("on_full", ON_FULL)):
            if getattr(self, name) not in choices:
                raise ValueError(f"table_options: {name} must be one of {choices}, not {getattr(self, name)!r}")

    def __str__(self) -> str:
        """The options that differ from the defaults, as JSON."""
        default = TableOptions()
        return json.dumps({name: value for name, value in asdict(self).items() if value != getattr(default, name)})

    @classmethod
    def parse(cls, text: str) -> TableOptions:
        """Reads what ``str(options)`` wrote."""
        known, given = {field.name for field in fields(cls)}, json.loads(text) if text else {}
        strange = sorted(given.keys() - known)
        if strange:
            raise ValueError(f"this version of refluid has no table option {', '.join(strange)}")
        return cls(**given)


def _kind(low: object) -> str:
    return "an integer" if isinstance(low, int) else "a number"
