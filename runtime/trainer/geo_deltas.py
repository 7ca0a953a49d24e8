"""GEO-SGD's arithmetic on a trainer: the delta to send, and what becomes of the values that are received.

Every k steps a trainer sends its own changes, divided by the number of trainers, and receives those of the others.

In a program with sparse tables this is done as in Fluid, see `Snapshot`: a trainer keeps its own changes whole, adds
the others' shares, and sends the rest of its own with the next exchanges; in the end the changes of all are added. In a
dense program Fluid exchanges nothing, and every trainer learns alone. There trainers average what they have learned,
see `Average`: a step changes every element, so what each has learned by itself, added up, would overshoot.
"""

from __future__ import annotations

import numpy as np

from refluid.runtime.transport.wire import Rows


class Snapshot:
    """What one trainer knows of one parameter on the servers: the value received last, plus its own deltas sent since.

    So the server's value minus the snapshot is the work of the others.
    """

    def __init__(self, value: np.ndarray):
        self._known = np.array(value)

    def delta(self, value: np.ndarray, trainers: int) -> np.ndarray:
        """This trainer's share of its changes, to be sent now; from now on the server knows it."""
        delta = (value - self._known) / np.asarray(trainers, value.dtype)
        self._known += delta
        return delta

    def delta_of_rows(self, value: np.ndarray, rows: np.ndarray, trainers: int) -> Rows:
        """The same for some rows of a table."""
        delta = (value[rows] - self._known[rows]) / np.asarray(trainers, value.dtype)
        self._known[rows] += delta
        return Rows(rows, delta)

    def merge(self, value: np.ndarray, received: np.ndarray) -> np.ndarray:
        """This trainer's value plus the changes of others, which the received value includes."""
        merged = value + (received - self._known)
        self._known = np.array(received)
        return merged

    def changes(self, received: Rows) -> Rows:
        """The changes of others in some rows of a table, which the received values include."""
        changed = received.values - self._known[received.rows]
        self._known[received.rows] = received.values
        return Rows(received.rows, changed)


class Average:
    """A parameter whose value on the servers is the mean of the values that trainers have pushed last."""

    def __init__(self, value: np.ndarray):
        self._known = np.array(value)  # the server's value as received last, plus the shares sent since
        self._pushed = np.array(value)  # this trainer's own part of the mean

    def delta(self, value: np.ndarray, trainers: int) -> np.ndarray:
        """The change of the mean of so many trainers when this one's part becomes ``value``."""
        delta = (value - self._pushed) / np.asarray(trainers, value.dtype)
        self._pushed = np.array(value)
        self._known += delta
        return delta

    def merge(self, value: np.ndarray, received: np.ndarray, missing: float) -> np.ndarray:
        """The mean, where the others' parts are as recent as this trainer's.

        As far as those are ``missing`` (1 for all of them), its own value stands for them.
        """
        merged = received + np.asarray(missing, value.dtype) * (value - self._known)
        self._known = np.array(received)
        return merged

    def begin_again(self, value: np.ndarray) -> None:
        """Other trainers take part than before: nobody knows what the mean is made of, so only changes count now."""
        self._pushed = np.array(value)


def missing_shares(own_steps: int, other_steps: int, others: int) -> float:
    """How much of the others' shares servers lack: all trainers are expected to take as many steps as this one."""
    expected = own_steps * others
    return max(0.0, 1.0 - other_steps / expected) if expected else 0.0
