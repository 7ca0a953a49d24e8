"""Rows of a table that a process holds whole, and knows the state of elsewhere: what both sides have changed."""

from __future__ import annotations

from refluid.runtime.tables.kernels.memory import IDS, VALUES, kernel


def _own_changes(values, known, rows, divisor, out):
    """Writes what rows differ by from what is known of them, divided, to ``out``; from now on that is known."""
    parts = out.dtype.type(divisor)
    for i in range(len(rows)):
        value, old, target = values[rows[i]], known[rows[i]], out[i]
        for column in range(out.shape[1]):
            target[column] = (value[column] - old[column]) / parts
            old[column] += target[column]


def _others_changes(received, known, rows, out):
    """Writes what received rows differ by from what was known of them to ``out``; from now on they are known."""
    for i in range(len(rows)):
        value, old, target = received[i], known[rows[i]], out[i]
        for column in range(out.shape[1]):
            target[column] = value[column] - old[column]
            old[column] = value[column]


_OWN = f"void({VALUES}, {{0}}[:, ::1], {IDS}, int64, {{0}}[:, ::1])"
_OTHERS = f"void({VALUES}, {{0}}[:, ::1], {IDS}, {{0}}[:, ::1])"
own_changes32, own_changes64 = (kernel(_OWN.format(kind))(_own_changes) for kind in ("float32", "float64"))
others_changes32, others_changes64 = (kernel(_OTHERS.format(kind))(_others_changes) for kind in ("float32", "float64"))
