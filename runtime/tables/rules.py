"""How rows of a table are updated, and how they begin: what kernels read, from operators of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refluid.runtime.tables.kernels import beginning, optimizers


@dataclass(frozen=True)
class OptimizerForm:
    """An optimizer op: its kernel, the input slots of its states in the order of the kernel, and its attributes."""

    kind: int
    states: tuple[str, ...] = ()
    constants: tuple[tuple[str, float], ...] = ()  # attributes in the places A, B, C, FLAG, with their defaults
    lazy: str | None = None  # an attribute that leaves rows without a gradient alone


# A, B, C and FLAG: see `optimizers.step`. An empty name leaves a place out.
_NONE = ("", 0.0)
OPTIMIZERS: Mapping[str, OptimizerForm] = {
    "sgd": OptimizerForm(optimizers.SGD),
    "momentum": OptimizerForm(optimizers.MOMENTUM, ("Velocity",), (("mu", 0.9), _NONE, _NONE, ("use_nesterov", 0.0))),
    "adagrad": OptimizerForm(optimizers.ADAGRAD, ("Moment",), (_NONE, _NONE, ("epsilon", 1e-6))),
    "decayed_adagrad": OptimizerForm(
        optimizers.DECAYED_ADAGRAD, ("Moment",), (("decay", 0.95), _NONE, ("epsilon", 1e-6))
    ),
    "adadelta": OptimizerForm(
        optimizers.ADADELTA, ("AvgSquaredGrad", "AvgSquaredUpdate"), (("rho", 0.95), _NONE, ("epsilon", 1e-6))
    ),
    "adam": OptimizerForm(
        optimizers.ADAM,
        ("Moment1", "Moment2"),
        (("beta1", 0.9), ("beta2", 0.999), ("epsilon", 1e-8)),
        lazy="lazy_mode",
    ),
    "adamax": OptimizerForm(
        optimizers.ADAMAX, ("Moment", "InfNorm"), (("beta1", 0.9), ("beta2", 0.999), ("epsilon", 1e-8))
    ),
    "rmsprop": OptimizerForm(
        optimizers.RMSPROP,
        ("Moment", "MeanSquare", "MeanGrad"),
        (("decay", 0.9), ("momentum", 0.0), ("epsilon", 1e-10), ("centered", 0.0)),
    ),
    "ftrl": OptimizerForm(
        optimizers.FTRL,
        ("SquaredAccumulator", "LinearAccumulator"),
        (("lr_power", -0.5), ("l1", 0.0), ("l2", 0.0)),
    ),
    "add": OptimizerForm(optimizers.ADD),
}


@dataclass(frozen=True)
class Rule:
    """How a gradient changes a row.

    Attributes:
      optimizer: the type of the op, or "add" for changes that are added.
      attrs: the op's attributes.
      l2, l1: weight decay, of all rows in every step.
      scale: what gradients are multiplied by, then cut to [lowest, highest].
    """

    optimizer: str
    attrs: Mapping[str, Any]
    l2: float = 0.0
    l1: float = 0.0
    scale: float = 1.0
    lowest: float = -np.inf
    highest: float = np.inf

    @property
    def form(self) -> OptimizerForm:
        return OPTIMIZERS[self.optimizer]

    @property
    def drifts(self) -> bool:
        """Whether rows change in steps in which they have no gradient; the kernel of this name decides the same."""
        if self.optimizer == "add" or (self.form.lazy and self.attrs.get(self.form.lazy)):
            return False
        return self.l2 != 0.0 or self.l1 != 0.0 or self.optimizer not in ("sgd", "adagrad")

    @property
    def saved_as(self) -> str:
        """What files call it. GEO trainers add the work of SGD to rows, so any job with SGD goes on with them."""
        return "sgd" if self.optimizer == "add" else self.optimizer

    def numbers(self) -> np.ndarray:
        """What kernels read."""
        found = np.zeros(optimizers.RULE_SIZE)
        found[optimizers.KIND] = self.form.kind
        for place, (name, default) in enumerate(self.form.constants, optimizers.A):
            value = self.attrs.get(name, default) if name else 0.0
            found[place] = np.float32(value)  # as ops keep their attributes
        found[optimizers.L2], found[optimizers.L1] = self.l2, self.l1
        found[optimizers.SCALE] = self.scale
        found[optimizers.LOWEST], found[optimizers.HIGHEST] = self.lowest, self.highest
        found[optimizers.LAZY] = bool(self.form.lazy and self.attrs.get(self.form.lazy))
        return found


@dataclass(frozen=True)
class Beginning:
    """How rows begin: the kind of initializer, its numbers, and the random key of the table."""

    kind: int
    first: float = 0.0
    second: float = 0.0
    words: tuple[int, int, int, int] = (0, 0, 0, 0)
    double: bool = False

    @classmethod
    def read(cls, numbers: np.ndarray) -> Beginning:
        """The inverse of `numbers`, which op begin_rows computes."""
        kind, first, second, double, *words = np.asarray(numbers, np.float64).tolist()
        return cls(int(kind), first, second, tuple(map(int, words)), bool(double))  # pyright: ignore[reportArgumentType]

    def with_key_of(self, other: Beginning) -> Beginning:
        """The same with the random key of another one that differs in nothing else: of a table that is resumed."""
        return other if replace(self, words=other.words) == other else self

    def numbers(self) -> np.ndarray:
        """What kernels read."""
        found = np.zeros(beginning.BEGINNING_SIZE)
        found[beginning.KIND], found[beginning.IS_DOUBLE] = self.kind, self.double
        found[beginning.FIRST_NUMBER], found[beginning.SECOND_NUMBER] = self.first, self.second
        found[beginning.FIRST_WORD :] = self.words
        return found


def zeros() -> Beginning:
    """Rows that begin with zeros."""
    return Beginning(beginning.CONSTANT)


def fills_of(states: Sequence[float]) -> np.ndarray:
    """The initial values of slots, as kernels read them."""
    return np.array(states, np.float64)
