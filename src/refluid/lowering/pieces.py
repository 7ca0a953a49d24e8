"""Common parts of the pieces of a step: each is made once, bound to scopes, and run on named values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol
from weakref import ref

import numpy as np
from jax.sharding import PartitionSpec

from refluid.backend import Target
from refluid.ops.core.gradients import Pullback
from refluid.ops.core.replicas import AXIS
from refluid.places import Place
from refluid.scope import Scope


class Holder(Protocol):
    """Where a scope keeps a value: a tensor, or a variable."""

    value: Any


class Count:
    """How many times pieces of steps were compiled: once for all scopes, again where shapes change between pieces."""

    total = 0


@dataclass(frozen=True)
class Options:
    """Options shared by all pieces of a step."""

    place: Place
    target: Target
    feeds: frozenset[str]
    persists: frozenset[str]  # persistable names that the step writes
    state: frozenset[str]  # names that the step reads from the scope or writes there
    partitions: Mapping[str, PartitionSpec]  # of those of them that are not replicated
    seeded: bool
    eager: bool
    padded: bool
    eager_loops: frozenset[int]
    count: Count

    @cached_property
    def sharded(self) -> frozenset[str]:
        """State whose rows replicas share out."""
        return frozenset(name for name, partition in self.partitions.items() if AXIS in partition)


@dataclass(frozen=True)
class Binding:
    """A scope, as the pieces of a step see it. It does not keep the scope alive."""

    scope: ref[Scope]
    holders: Mapping[str, Holder]  # of everything that the step reads from the scope or writes there
    target: Target
    partitions: Mapping[str, PartitionSpec] = field(default_factory=dict)  # of state that is not replicated
    on_close: list[Callable[[], None]] = field(default_factory=list)  # close what pieces share with other processes
    on_expect: list[Callable[[Mapping[str, Any]], None]] = field(default_factory=list)  # announce the next feeds to it

    def move_state(self) -> bool:
        """Moves state that lives on another device to the step's; returns whether there was any."""
        moved = False
        for name, holder in self.holders.items():
            target = self.target.placed(self.partitions[name]) if name in self.partitions else self.target
            if not target.holds(holder.value):
                holder.value = target.move(holder.value)
                moved = True
        return moved


@dataclass
class Run:
    """One run of a step: values by name, the random key and the pullbacks that pieces share."""

    env: dict[str, Any]
    key_data: np.ndarray | None  # of the step's random key
    pullbacks: dict[int, Pullback] = field(default_factory=dict)
    _replicas: list[Run] = field(default_factory=list)

    def of_replicas(self, count: int) -> list[Run]:
        """Runs of host ops for single replicas: each has its own key and pullbacks."""
        while len(self._replicas) < count:
            key = None if self.key_data is None else self.key_data ^ np.array([len(self._replicas) << 16, 0], np.uint32)
            self._replicas.append(Run({}, key))
        return self._replicas[:count]


# A piece bound to a scope: writes its results into ``run.env``, and the persistable ones into the scope.
BoundPiece = Callable[[Run], None]


class StepPiece(ABC):
    """A piece of a step, ready to be bound to any number of scopes."""

    is_random = False
    changes_state = False  # whether it reuses the memory of state that it changes

    @abstractmethod
    def bind(self, binding: Binding) -> BoundPiece:
        """Binds the piece to a scope."""
