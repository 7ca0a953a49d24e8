"""Packing: variables of a trainer are cut into slices for servers, and slices in replies joined into variables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from refluid.alignment import aligned
from refluid.backend import Device
from refluid.ops.core.values import SelectedRows
from refluid.runtime.tables.batches import merged
from refluid.runtime.trainer.exchange_plan import SlicedVariable
from refluid.runtime.transport.wire import Rows, Value

Versions = Mapping[str, int]  # how many training steps the parameters of each server include, by endpoint


class Tensors(dict[str, Value]):
    """The tensors in a server's reply by name, and their version."""

    def __init__(self, tensors: Mapping[str, Value], version: int):
        super().__init__(tensors)
        self.version = version


Replies = Mapping[str, Tensors]  # by endpoint


def versions_of(replies: Replies) -> Versions:
    """The versions of the parameters in replies."""
    return {endpoint: tensors.version for endpoint, tensors in replies.items()}


@dataclass(frozen=True)
class Message:
    """What an exchange sends to one server, and what it pulls from it."""

    pushed: Mapping[str, Value]
    wanted: Sequence[str] = ()
    reply_size: int = 0  # bytes, about
    asked: Mapping[str, np.ndarray] = field(default_factory=dict)  # numbers of the rows that a push asks for, by table


def to_host(variables: Sequence[SlicedVariable], env: Mapping[str, Any]) -> list[Value]:
    """The values of variables in a step as they are sent."""
    return [on_host(env[variable.name]) for variable in variables]


def on_host(value: Any) -> Value:
    """A value on the host. Of selected rows, each row once; entries that hold no row are left out."""
    if not isinstance(value, SelectedRows):
        return np.asarray(value)
    rows, values = np.asarray(value.rows, np.int64), np.asarray(value.values)
    real = rows < value.height
    return Rows(*(merged(rows, values) if real.all() else merged(rows[real], values[real])))


def cut(variable: SlicedVariable, value: Value, suffix: str = "") -> list[tuple[str, str, Value]]:
    """Cuts a value into slices: endpoint, name there, and value of each. Dense slices are views."""
    if variable.wire is not None and isinstance(value, Rows):
        value = Rows(value.rows, value.values.astype(variable.wire))
    if len(variable.slices) == 1:
        (part,) = variable.slices
        return [(part.endpoint, part.name + suffix, value)]
    if isinstance(value, Rows):
        return [
            (part.endpoint, part.name + suffix, Rows(numbers, value.values[chosen]))
            for part, chosen, numbers in variable.shared_out(value.rows)
        ]
    return [(part.endpoint, part.name + suffix, value[part.start : part.end]) for part in variable.slices]


def join(variable: SlicedVariable, replies: Replies) -> np.ndarray:
    """Joins the slices in the servers' replies, the inverse of `cut`; nobody else holds the result's memory."""
    whole = aligned(variable.shape, variable.dtype)
    for part in variable.slices:
        whole[part.start : part.end] = replies[part.endpoint][part.name]
    return whole


@dataclass(frozen=True)
class Pulls:
    """What is pulled from each server: names, and the size of the reply in bytes."""

    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, variables: Sequence[SlicedVariable]) -> Pulls:
        """The pulls that give these variables."""
        names: dict[str, list[str]] = {}
        sizes: dict[str, int] = {}
        for variable in variables:
            for part in variable.slices:
                size = 0 if variable.grows else math.prod(part.shape) * variable.dtype.itemsize
                names.setdefault(part.endpoint, []).append(part.name)
                sizes[part.endpoint] = sizes.get(part.endpoint, 0) + size
        return cls(names, sizes)


NO_PULLS = Pulls()


def pack(
    pushes: Sequence[tuple[SlicedVariable, Value]], pulls: Pulls = NO_PULLS, suffix: str = ""
) -> dict[str, Message]:
    """One message for each server that is pushed to or pulled from."""
    pushed: dict[str, dict[str, Value]] = {}
    for variable, value in pushes:
        for endpoint, name, piece in cut(variable, value, suffix):
            pushed.setdefault(endpoint, {})[name] = piece
    names, sizes = pulls.names, pulls.sizes
    return {
        endpoint: Message(pushed.get(endpoint, {}), names.get(endpoint, ()), sizes.get(endpoint, 0))
        for endpoint in {**pushed, **names}
    }


def unpack(variables: Sequence[SlicedVariable], replies: Replies, device: Device) -> dict[str, Any]:
    """The variables in replies, where steps use them."""
    return {variable.name: to_device(join(variable, replies), device) for variable in variables}


def to_device(array: np.ndarray, device: Device) -> Any:
    """Puts a joined array where steps use it. A CPU step takes over aligned memory as it is."""
    return array if device.platform == "cpu" else jax.device_put(array, device)
