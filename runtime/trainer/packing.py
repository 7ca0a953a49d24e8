"""Between variables of a trainer and slices on servers: cutting what is sent, joining what comes back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from refluid.lowering.staging import aligned
from refluid.ops.core.values import SelectedRows
from refluid.runtime.trainer.exchange_plan import Sliced
from refluid.runtime.trainer.session import Message
from refluid.runtime.transport.wire import Rows, Value


def on_host(value: Any) -> Value:
    """A value of a step as it travels; places of selected rows that hold no row are left out."""
    if not isinstance(value, SelectedRows):
        return np.asarray(value)
    rows, values = np.asarray(value.rows), np.asarray(value.values)
    real = rows < value.height
    return Rows(rows, values) if real.all() else Rows(rows[real], values[real])


def cut(variable: Sliced, value: Value, suffix: str = "") -> list[tuple[str, str, Value]]:
    """The slices of a value: endpoint, name there, and the slice. Dense slices are views."""
    found: list[tuple[str, str, Value]] = []
    for part in variable.slices:
        if len(variable.slices) == 1:
            piece = value
        elif isinstance(value, Rows):
            inside = (value.rows >= part.begin) & (value.rows < part.end)
            piece = Rows(value.rows[inside] - part.begin, value.values[inside])
        else:
            piece = value[part.begin : part.end]
        found.append((part.endpoint, part.name + suffix, piece))
    return found


@dataclass(frozen=True)
class Wanted:
    """What is wanted from each server: names, and how many bytes they are."""

    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, pulls: Sequence[Sliced]) -> Wanted:
        """What to ask for, to get these variables."""
        names: dict[str, list[str]] = {}
        sizes: dict[str, int] = {}
        for variable in pulls:
            width = math.prod(variable.shape[1:]) * variable.dtype.itemsize
            for part in variable.slices:
                names.setdefault(part.endpoint, []).append(part.name)
                sizes[part.endpoint] = sizes.get(part.endpoint, 0) + (part.end - part.begin) * width
        return cls(names, sizes)


NOTHING = Wanted()


def messages(pushes: Sequence[tuple[Sliced, Value]], wanted: Wanted = NOTHING, suffix: str = "") -> dict[str, Message]:
    """One message per server that gets a value or is asked for one."""
    pushed: dict[str, dict[str, Value]] = {}
    for variable, value in pushes:
        for endpoint, name, piece in cut(variable, value, suffix):
            pushed.setdefault(endpoint, {})[name] = piece
    names, sizes = wanted.names, wanted.sizes
    return {
        endpoint: Message(pushed.get(endpoint, {}), names.get(endpoint, ()), sizes.get(endpoint, 0))
        for endpoint in {**pushed, **names}
    }


def join(variable: Sliced, answers: Mapping[str, Mapping[str, Value]]) -> np.ndarray:
    """A variable put together from the slices in the servers' answers; nobody else holds its memory."""
    whole = aligned(variable.shape, variable.dtype)
    for part in variable.slices:
        whole[part.begin : part.end] = answers[part.endpoint][part.name]
    return whole


def to_device(array: np.ndarray, device: Any) -> Any:
    """An array of ours where steps find it. On a CPU that is where it is: a step takes aligned memory over as it is."""
    return array if device.platform == "cpu" else jax.device_put(array, device)
