"""GEO-SGD of dense programs on a server: parameters are the mean of the values that trainers have pushed last.

Fluid exchanges nothing in such programs, and every trainer learns alone. The deltas of programs with tables are added;
here a step changes every element, so what each trainer has learned by itself, added up, would overshoot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from refluid.ir.modes import DELTA
from refluid.runtime.transport.wire import Value, dense

_OUTDATED = 3  # pushes of another trainer since; what has left or is far behind does not hold the mean back


class Averages:
    """The values that trainers have pushed last."""

    def __init__(self) -> None:
        self._values: dict[int, dict[str, np.ndarray]] = {}
        self._since: dict[int, Counter[int]] = {}  # trainer -> how often each of the others has pushed since

    def push(self, trainer: int, pushed: Mapping[str, Value]) -> None:
        """Replaces the values of a trainer; those of trainers that have fallen behind are dropped."""
        self._values[trainer] = {name.removesuffix(DELTA): np.array(dense(value)) for name, value in pushed.items()}
        self._since[trainer] = Counter()
        for other, since in list(self._since.items()):
            since[trainer] += other != trainer
            if since[trainer] >= _OUTDATED:
                del self._values[other], self._since[other]

    def deltas(self, held: Mapping[str, np.ndarray]) -> dict[str, Value]:
        """What has to be added to the values that the server holds to make them the mean."""
        parts = list(self._values.values())
        return {name + DELTA: sum(part[name] for part in parts) / len(parts) - held[name] for name in parts[0]}
