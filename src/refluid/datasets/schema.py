"""The slots of a dataset: what a line holds, in which order, and the variables that take it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from refluid.ir.vartype import as_numpy

_IDS, _FLOATS, _WORD = range(3)  # as the kernels number them
LINE_ID, CONTENT = "the id of the line", "the content of the line"  # names of words
_DTYPES = (np.dtype(np.int64), np.dtype(np.float32))


@dataclass(frozen=True)
class Slot:
    """One field of a line.

    Attributes:
      dense: the variable is an array of ``shape``; otherwise it is a sequence, and the shape does not matter.
      is_word: no number but a word, which no variable takes: the id of a line, or a comment.
    """

    name: str
    dtype: np.dtype
    dense: bool
    shape: tuple[int, ...] = ()
    is_word: bool = False

    @classmethod
    def of(cls, variable: Any) -> Slot:
        """The slot that fills a variable of a program."""
        dtype = as_numpy(variable.dtype)
        if dtype not in _DTYPES:
            raise ValueError(f"a dataset has float32 and int64 variables only, but {variable.name} is {dtype}")
        shape = tuple(int(dim) for dim in variable.shape)
        if variable.lod_level > 0:
            return cls(variable.name, dtype, dense=False)
        if sum(dim < 0 for dim in shape) > 1 or 0 in shape:
            raise ValueError(
                f"a dataset cannot fill {variable.name} of shape {list(shape)}: one dim may be -1, the others are sizes"
            )
        return cls(variable.name, dtype, dense=True, shape=shape)

    @property
    def width(self) -> int:
        """The number of values is a multiple of this."""
        return math.prod(abs(dim) for dim in self.shape) if self.dense else 1

    def __str__(self) -> str:
        if self.is_word:
            return self.name
        what = "ids" if self.dtype == np.int64 else "floats"
        return f"slot {self.name} ({f'{what} of shape {list(self.shape)}' if self.dense else what})"


@dataclass(frozen=True)
class Schema:
    """The slots of a line, in order."""

    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, variables: Iterable[Any]) -> Schema:
        """The slots that fill these variables of a program."""
        return cls(tuple(Slot.of(variable) for variable in variables))

    def after_words(self, names: Iterable[str]) -> Schema:
        """The same slots after some words."""
        words = (Slot(name, np.dtype(np.int64), dense=False, is_word=True) for name in names)
        return Schema((*words, *self.slots))

    @property
    def has_line_id(self) -> bool:
        """Whether lines begin with an id, the same in lines that belong together."""
        return self.slots[0].is_word and self.slots[0].name == LINE_ID

    @cached_property
    def kinds(self) -> np.ndarray:
        """What the kernels need to know of each slot: whether it holds ids or floats."""
        kinds = [_WORD if slot.is_word else _IDS if slot.dtype == np.int64 else _FLOATS for slot in self.slots]
        return np.array(kinds, np.int64)

    @cached_property
    def dense(self) -> np.ndarray:
        """Whether each slot is dense."""
        return np.array([slot.dense for slot in self.slots], np.int64)

    @cached_property
    def widths(self) -> np.ndarray:
        return np.array([slot.width for slot in self.slots], np.int64)

    def __len__(self) -> int:
        return len(self.slots)
