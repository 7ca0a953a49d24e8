"""GEO-SGD of dense programs on a server: parameters are the mean of the values that trainers have pushed last.

Fluid exchanges nothing in such programs, and every trainer learns alone. The deltas of programs with tables are added;
here a step changes every element, so what each trainer has learned by itself, added up, would overshoot.

A trainer that pushes between two pushes of the others would be drawn back by their values, which are older than its
own. So while training descends it goes on with the mean as it will be: others are taken to have learned meanwhile what
it has learned itself, as far as that points the same way as what it had learned before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from refluid.ir.modes import DELTA
from refluid.runtime.observe.agreement import agreement
from refluid.runtime.transport.wire import Value, dense

_OUTDATED = 3  # pushes of another trainer since; what has left or is far behind does not hold the mean back

_VALUES = ("_pushed", "_given", "_learned", "_expected")  # what is kept for each trainer

Values = dict[str, np.ndarray]


class Averages:
    """The values that trainers have pushed last, and those that they go on with."""

    def __init__(self) -> None:
        self._pushed: dict[int, Values] = {}
        self._pushed_at: dict[int, float] = {}
        self._since: dict[int, Counter[int]] = {}  # trainer -> how often each of the others has pushed since
        self._given: dict[int, Values] = {}  # what each trainer went on with after its last reply
        self._learned: dict[int, Values] = {}  # what it had learned until its last push
        self._expected: dict[int, Values] = {}  # what others are taken to have learned by then

    def state(self) -> dict[str, Any]:
        """What a restarted server must know, as plain data and arrays."""
        return {
            "values": {name: _texts(getattr(self, name)) for name in _VALUES},
            "pushed_at": _texts(self._pushed_at),
            "since": _texts({trainer: _texts(since) for trainer, since in self._since.items()}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        for name in _VALUES:
            values = {int(trainer): dict(each) for trainer, each in state["values"][name].items()}
            setattr(self, name, values)
        self._pushed_at = {int(trainer): at for trainer, at in state["pushed_at"].items()}
        self._since = {
            int(trainer): Counter({int(other): count for other, count in since.items()})
            for trainer, since in state["since"].items()
        }

    def begin_life(self, trainer: int) -> None:
        """A new process goes on for a trainer, with the values that the server holds."""
        for known in (self._given, self._learned, self._expected):
            known.pop(trainer, None)

    def push(self, trainer: int, pushed: Mapping[str, Value], now: float) -> None:
        """Replaces the values of a trainer; those of trainers that have fallen behind are dropped."""
        values = {name.removesuffix(DELTA): np.array(dense(value)) for name, value in pushed.items()}
        given, before = self._given.get(trainer, values), self._pushed_at.get(trainer, now)
        self._pushed[trainer], self._pushed_at[trainer], self._since[trainer] = values, now, Counter()
        self._given[trainer] = values  # until a reply gives it others
        for other, since in list(self._since.items()):
            since[trainer] += other != trainer
            if since[trainer] >= _OUTDATED:
                del self._pushed[other], self._since[other]
        learned = {name: value - given[name] for name, value in values.items()}
        earlier = self._learned.get(trainer, learned)
        self._learned[trainer] = learned
        share = self._age(now, now - before) * max(0.0, agreement([*earlier.values()], [*learned.values()]))
        self._expected[trainer] = {name: each * np.asarray(share, each.dtype) for name, each in learned.items()}

    def _age(self, now: float, period: float) -> float:
        """The mean age of all values, a trainer's own included, as a part of the time between its own pushes."""
        ages = [min(1.0, (now - self._pushed_at[other]) / period) if period else 0.0 for other in self._pushed]
        return sum(ages) / len(ages)

    def deltas(self, held: Mapping[str, np.ndarray]) -> dict[str, Value]:
        """What has to be added to the values that the server holds to make them the mean."""
        parts = list(self._pushed.values())
        return {name + DELTA: sum(part[name] for part in parts) / len(parts) - held[name] for name in parts[0]}

    def replied(self, trainer: int) -> Values:
        """What the last reply told a trainer to go on with."""
        return self._given[trainer]

    def reply(self, trainer: int, held: Mapping[str, np.ndarray]) -> Values:
        """What a trainer goes on with, given the values that the server holds."""
        expected = self._expected.get(trainer, {})
        self._given[trainer] = {
            name: value + expected[name] if name in expected else np.array(value) for name, value in held.items()
        }
        return self._given[trainer]


def _texts(found: Mapping[int, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in found.items()}
