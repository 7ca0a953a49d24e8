"""Buckets: sizes that sequences are padded to, so that batches of different lengths share compiled steps.

A fed tensor has a number of rows, a longest sequence and, with several LoD levels, numbers of inner sequences. The
sizes of all feeds together select a compiled step. A set of sizes in use is reused as long as it does not waste too
much; a new one leaves some room. The first batch says little about the size of later ones: after some batches, a
smaller set is added that fits most of them, if it is worth a compilation. When many sets are in use, more waste is
accepted. So programs with batches of variable length settle to a handful of compilations.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from refluid.ops.core.values import Ragged
from refluid.tensors import LoDTensor

Need = tuple[str, str]  # a feed, and which of its sizes: "rows", "longest" or "sequences" and a level

_SMALLEST = 8
_ROOM = 1.125  # a new bucket for rows is at least this many times larger than the batch
_WASTE = {"rows": 1.5, "longest": 2.0, "sequences": 2.0}  # how many times too large a bucket may be
_SETS, _BATCHES = 3, 64  # free sets of sizes; each further one needs twice as many batches
_ALIKE = 2.5  # feeds whose largest sizes are within this factor of each other share them in sets that hold everything
# After _TRIAL batches, sizes that fit _MOST of them are added if they save a tenth of the rows. A run that has come so
# far mostly goes on for long enough to pay for another compilation, and a short one does not compile for nothing.
_TRIAL, _MOST, _WORTH = 128, 0.9, 0.9
_KINDS = ("rows", "longest", "sequences")


class Buckets:
    """The sizes in use; printed, one line for each set of sizes that a step was compiled for.

    >>> executor.buckets.choose(rows=[1024, 2048], longest=[80])
    >>> print(executor.buckets)
    """

    def __init__(self):
        self.in_use: dict[tuple[Need, ...], Counter[tuple[int, ...]]] = {}
        self._chosen: dict[tuple[str | None, str], list[int]] = {}
        self._first_batches: dict[tuple[Need, ...], list[tuple[int, ...]]] = {}

    def choose(
        self,
        feed: str | None = None,
        *,
        rows: Iterable[int] = (),
        longest: Iterable[int] = (),
        sequences: Iterable[int] = (),
    ) -> None:
        """Sets the sizes to pad to. A batch larger than all of them gets its own size.

        Args:
          feed: the variable to set them for; by default all variables without sizes of their own.
          rows: numbers of rows of a batch, all sequences together.
          longest: lengths of the longest sequence.
          sequences: numbers of sequences in inner LoD levels.
        """
        for kind, sizes in zip(_KINDS, (rows, longest, sequences), strict=True):
            found = sorted({int(size) for size in sizes})
            if found and found[0] < 1:
                raise ValueError(f"sizes of {kind} must be positive, not {found[0]}")
            if found:
                self._chosen[feed, kind] = found
        self.in_use.clear()
        self._first_batches.clear()

    def fit(self, tensors: Mapping[str, LoDTensor], exact: bool = False) -> dict[str, Ragged]:
        """Converts fed tensors to ragged values; ``exact`` keeps the numbers of rows and sequences as they are."""
        return self.fit_all([tensors], exact)[0]

    def fit_all(
        self,
        feeds: Sequence[Mapping[str, LoDTensor]],
        exact: bool = False,
        agree: Callable[[Sequence[int]], Sequence[int]] | None = None,
    ) -> list[dict[str, Ragged]]:
        """Converts the tensors of several feeds to ragged values of the same sizes.

        Args:
          agree: from the sizes chosen here to those to use, which are at least as large.
        """
        by_feed = [{name: _needs(tensor) for name, tensor in feed.items()} for feed in feeds]
        needs = {
            (name, kind): max(needed[name][kind] for needed in by_feed)
            for name, kinds in by_feed[0].items()
            for kind in kinds
        }
        if exact:
            sizes = {need: round_up(size) for need, size in needs.items() if need[1] == "longest"}
        else:
            chosen = self._sizes(needs)
            if agree is not None:
                chosen = tuple(agree(chosen))
                self.in_use[tuple(needs)].setdefault(chosen, 0)  # so that later batches choose it here as well
            sizes = dict(zip(needs, chosen, strict=True))
        by_name: dict[str, dict[str, int]] = {}
        for (name, kind), size in sizes.items():
            by_name.setdefault(name, {})[kind] = size
        return [{name: _ragged(tensor, by_name[name]) for name, tensor in feed.items()} for feed in feeds]

    def _sizes(self, needs: Mapping[Need, int]) -> tuple[int, ...]:
        """Returns sizes for all needs of a feed: a set in use, or a new one.

        While few sets are in use, they must fit well. Later a set that is far too large is better than another
        compilation; the longer a program runs, the more sets it may have.
        """
        used = self.in_use.setdefault(tuple(needs), Counter())
        large = [sizes for sizes in used if self._hold(needs, sizes)]
        fitting = [sizes for sizes in large if all(map(self._fits, needs, sizes, needs.values()))]
        if not fitting and len(used) >= _SETS + math.log2(1 + used.total() / _BATCHES):
            fitting = large or [self._large_sizes(needs, used)]
        sizes = min(fitting, key=math.prod) if fitting else self._new_sizes(needs, used)
        used[sizes] += 1
        if used.total() <= _TRIAL:
            self._learn(needs, used)
        return sizes

    def _learn(self, needs: Mapping[Need, int], used: Counter[tuple[int, ...]]) -> None:
        """Records the first batches; once there are enough, adds sizes that hold most of them."""
        seen = self._first_batches.setdefault(tuple(needs), [])
        seen.append(tuple(needs.values()))
        if used.total() < _TRIAL or any(map(self._choice, needs)):
            return
        usual = max(used, key=lambda sizes: used[sizes])
        enough = np.quantile(np.array(seen), _MOST, axis=0)
        smaller = tuple(min(size, round_up(int(wanted), 4)) for size, wanted in zip(usual, enough, strict=True))
        rows = [place for place, (_, kind) in enumerate(needs) if kind == "rows"]
        if sum(smaller[place] for place in rows) <= _WORTH * sum(usual[place] for place in rows):
            used[smaller] = 0

    def _hold(self, needs: Mapping[Need, int], sizes: tuple[int, ...]) -> bool:
        """Whether sizes are large enough, and equal where needs are: words and their labels stay aligned."""
        found: dict[tuple[str, int], int] = {}
        return all(
            self._holds(need, size, wanted) and found.setdefault((need[1], wanted), size) == size
            for (need, wanted), size in zip(needs.items(), sizes, strict=True)
        )

    def _new_sizes(self, needs: Mapping[Need, int], used: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        """Returns sizes that fit well, preferably ones in use."""
        found: dict[tuple[str, int], int] = {}
        for place, (need, size) in enumerate(needs.items()):
            known = [sizes[place] for sizes in used if self._fits(need, sizes[place], size)]
            found.setdefault((need[1], size), min(known) if known else self._new_size(need, size))
        return tuple(found[need[1], size] for need, size in needs.items())

    def _large_sizes(self, needs: Mapping[Need, int], used: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        """Returns sizes that hold all batches so far as well, except where the user chose smaller ones.

        Feeds of similar size get the same one: lengths that are equal by chance need equal sizes, and must not
        lead to another set for every pair of feeds.
        """
        found: dict[tuple[str, int], int] = {}
        for place, (need, size) in enumerate(needs.items()):
            known = [sizes[place] for sizes in used if self._holds(need, sizes[place], size)]
            largest = max([*known, self._new_size(need, size)])
            found[need[1], size] = max(found.get((need[1], size), 0), largest)
        alike = 1.0 if any(map(self._choice, needs)) else _ALIKE
        return tuple(
            max(other for (kind, _), other in found.items() if kind == need[1] and other <= alike * found[kind, size])
            for need, size in needs.items()
        )

    def _new_size(self, need: Need, size: int) -> int:
        kind = need[1].split()[0]
        large_enough = [chosen for chosen in self._choice(need) if chosen >= size]
        return large_enough[0] if large_enough else round_up(int(size * _ROOM) if kind == "rows" else size)

    def _holds(self, need: Need, size: int, wanted: int) -> bool:
        """Whether ``size`` is large enough and no smaller size that the user chose is."""
        return wanted <= size and not any(wanted <= chosen < size for chosen in self._choice(need))

    def _fits(self, need: Need, size: int, wanted: int) -> bool:
        """Whether ``size`` holds what is wanted without much waste, or was chosen by the user."""
        limit = max(_SMALLEST, wanted * _WASTE[need[1].split()[0]])
        return self._holds(need, size, wanted) and (size <= limit or size in self._choice(need))

    def _choice(self, need: Need) -> list[int]:
        kind = need[1].split()[0]
        return self._chosen.get((need[0], kind)) or self._chosen.get((None, kind), [])

    def __str__(self) -> str:
        lines = []
        for needs, used in self.in_use.items():
            for sizes, batches in (+used).items():  # those that a batch used
                by_feed: dict[str, list[str]] = {}
                for (name, kind), size in zip(needs, sizes, strict=True):
                    by_feed.setdefault(name, []).append(f"{kind} {size}")
                text = "; ".join(f"{name}: {', '.join(parts)}" for name, parts in by_feed.items())
                lines.append(f"{text}   {batches} batch{'es' if batches > 1 else ''}")
        return "\n".join(lines) or "no sequences were fed"


def _needs(tensor: LoDTensor) -> dict[str, int]:
    inner = {f"sequences {level}": len(offsets) - 1 for level, offsets in enumerate(tensor._lod) if level}
    return {"rows": len(tensor), "longest": _longest(tensor), **inner}


def _longest(tensor: LoDTensor) -> int:
    return int(np.diff(tensor._lod[-1]).max(initial=0))


def _ragged(tensor: LoDTensor, sizes: Mapping[str, int]) -> Ragged:
    """Pads a tensor to ``sizes``; rows and sequences without a size are not padded."""
    data = np.asarray(tensor.value)
    offsets = [np.asarray(level, np.int32) for level in tensor._lod]
    for level in range(1, len(offsets)):
        offsets[level] = extended(offsets[level], sizes.get(f"sequences {level}", 0) + 1)
    return Ragged(extended(data, sizes.get("rows", 0), 0), tuple(offsets), sizes["longest"])


def extended(array: np.ndarray, size: int, index: int = -1) -> np.ndarray:
    """Pads ``array`` with copies of one of its elements, because a copy of a real row produces no new NaNs."""
    if len(array) >= size:
        return array
    out = np.empty((size, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    out[len(array) :] = array[index] if len(array) else 0
    return out


def round_up(size: int, digits: int = 3) -> int:
    """Rounds up to a size with at most ``digits`` significant binary digits."""
    if size <= _SMALLEST:
        return _SMALLEST
    step = 1 << max(0, size.bit_length() - digits)
    return -(-size // step) * step


def with_room(value: Any) -> Any:
    """Pads the rows that an op on the host has found, so that other numbers of them share compiled pieces."""
    if not isinstance(value, Ragged):
        return value
    rows = extended(np.asarray(value.data), round_up(value.shape[0]), 0)
    return replace(value, data=rows, longest=round_up(value.longest))


def to_ragged(tensor: LoDTensor) -> Ragged:
    """Converts a tensor with sequences to the form that ops use, without padding."""
    return Ragged(tensor.value, tuple(jnp.asarray(level, jnp.int32) for level in tensor._lod), _longest(tensor))
