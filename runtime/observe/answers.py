"""What a server answers to Status, read with care: it may be older or newer than this tool, or no server of ours.

What an answer lacks gets what stands for nothing; what is not known here is left out; what has another type than it
should is an error. Texts lose what would steer a terminal.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from refluid.runtime.observe.waits import cut

_LONGEST = 2000  # characters of a text
_LARGEST = 1 << 64  # of whole numbers: what a table can show


class _Or(NamedTuple):
    """Something that may be missing, and what stands for it then."""

    form: Any
    otherwise: Any


_ANY = ...  # the names of such an object are those of the server
_NUMBERS = {_ANY: float}
_WAIT = {
    "who": [str],
    "what": str,
    "awaited": [str],
    "seconds": float,
    "problem": _Or(str, ""),
    "blocks": _Or(bool, True),
}
_TRAINER = {
    "trainer": int,
    "host": _Or(str, ""),
    "joined": _Or(bool, False),
    "left": _Or(bool, False),
    "last_seen": _Or(float, None),
    "steps": _Or(int, 0),
    "staleness": _Or(int, 0),
    "max_staleness": _Or(int, 0),
    "max_lead": _Or(int, None),
    "behind": _Or(int, 0),
    "last_push": _Or(float, None),
    "idle": _Or(float, None),
    "doing": _Or(str, ""),
    "lost": _Or(str, ""),
    "left_out": _Or(bool, False),
}
_TABLE = {
    "table": str,
    "rows": int,
    "bytes": int,
    "budget": _Or(int, 0),
    "most_rows": _Or(int, None),
    "evicted": _Or(int, 0),
}
_RECOVERY = {
    "restored": _Or(bool, False),
    "snapshot_round": _Or(int, None),
    "snapshot_age": _Or(float, None),
    "log_bytes": _Or(int, None),
    "problem": _Or(str, ""),
}
_COUNTS = ("queue_depth", "pushes", "pulls", "refused", "bytes_received", "bytes_sent", "lost_updates", "version")
_STATUS = {
    "role": _Or(str, "server"),
    "endpoint": str,
    "mode": str,
    "round": int,
    "trainers": [_TRAINER],
    "awaited": _Or([int], []),
    "exchange_ms": _Or(_NUMBERS, None),
    "update_ms": _Or(_NUMBERS, None),
    "staleness": _Or({_ANY: int}, {}),
    "tables": _Or([_TABLE], []),
    "recovery": _Or(_RECOVERY, None),
    "queues": _Or({_ANY: float}, {}),
    "waits": _Or([_WAIT], []),
    "cause": _Or(str, None),
    "problem": _Or(str, ""),
    **{name: _Or(int, 0) for name in _COUNTS},
}


def read_status(text: str) -> dict[str, Any]:
    """The status in an answer.

    Raises:
      ValueError: there is none.
    """
    try:
        return _read(json.loads(text), _STATUS, "the status")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _read(found: Any, form: Any, at: str) -> Any:
    if isinstance(form, _Or):
        return form.otherwise if found is None else _read(found, form.form, at)
    if isinstance(form, list):
        return [_read(each, form[0], f"{at}[]") for each in _of_type(found, list, at)]
    if isinstance(form, dict):
        given = _of_type(found, dict, at)
        if _ANY in form:
            named = {cut(name): each for name, each in given.items()}
            return {name: _read(each, form[_ANY], f"{at}.{name}") for name, each in named.items()}
        return {name: _read(given.get(name), part, f"{at}.{name}") for name, part in form.items()}
    if form is str:
        return cut(_of_type(found, str, at), _LONGEST)
    if form is bool:
        return _of_type(found, bool, at)
    number = _of_type(found, int if form is int else (int, float), at)
    if isinstance(number, bool) or not abs(number) <= _LARGEST:
        raise ValueError(f"{at} is no number that can be")
    return number


def _of_type(found: Any, kind: Any, at: str) -> Any:
    if not isinstance(found, kind):
        raise ValueError(f"{at} is missing" if found is None else f"{at} is of the type {type(found).__name__}")
    return found
