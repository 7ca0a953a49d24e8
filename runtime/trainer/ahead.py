"""How far ahead of its parameters an async trainer goes: decisions only, times and gradients are arguments.

A trainer that goes on while its message is under way computes with old parameters. That pays only if messages take
longer than steps, and it does harm if the parameters move far meanwhile: gradients then correct the same error several
times, and training overshoots. The gradients themselves tell: while training descends, those of a message point the
same way as those of the message before; when it overshoots, they point back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

import numpy as np

from refluid.runtime.observe.agreement import agreement
from refluid.runtime.trainer.pacing import Pacing
from refluid.runtime.transport.wire import Value

_REMEMBERED = 3  # messages and steps whose times count
_WEIGHT = 0.5  # of the last message in the mean agreement
_LARGEST = 1 << 20  # elements; comparing more of them takes longer than a message saves
_DESCENDS = 0.3  # gradients that agree this much are those of a descent


class Ahead:
    """How many own steps the parameters of the next step may lack: `allowed`.

    With a fixed bound it is that. Otherwise it begins with 0, grows by a step with every message while gradients agree,
    as long as the steps fit into half the time of a message, and begins again when they point back.
    """

    def __init__(self, pacing: Pacing):
        self._bound, self._adapts = pacing.max_staleness, pacing.adapts
        self._steps: deque[float] = deque(maxlen=_REMEMBERED)  # seconds that steps took
        self._messages: deque[float] = deque(maxlen=_REMEMBERED)  # seconds from messages to their replies
        self._before: list[np.ndarray] = []  # the gradients of the message before
        self._agreement = 0.0
        self.allowed = 0 if self._adapts else self._bound

    def stepped(self, seconds: float) -> None:
        """Records how long a step took."""
        self._steps.append(seconds)

    def replied(self, seconds: float, gradients: Iterable[Value]) -> None:
        """Records how long a message took, and the gradients that it carried."""
        if not self._adapts:
            return
        self._messages.append(seconds)
        useful = self._useful()
        dense = [value for value in gradients if isinstance(value, np.ndarray)]
        if not useful or sum(value.size for value in dense) > _LARGEST:
            self.allowed, self._before, self._agreement = 0, [], 0.0
            return
        agree = agreement(self._before, dense) if len(self._before) == len(dense) else 0.0
        self._before = dense
        if agree < 0:
            self.allowed, self._agreement = 0, 0.0
            return
        self._agreement += _WEIGHT * (agree - self._agreement)
        if self._agreement > _DESCENDS:
            self.allowed += 1
        self.allowed = min(self.allowed, useful)

    def _useful(self) -> int:
        """How many steps fit into half the time of a message; none until that is known: the first ones compile.

        Of the steps that parameters lack, some are on their way and about as many are queued behind them.
        """
        if len(self._messages) < _REMEMBERED or not self._steps:
            return 0
        return min(self._bound, int(median(self._messages) / max(2 * median(self._steps), 1e-6)))
