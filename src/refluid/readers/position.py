"""Where a reader is, as part of a checkpoint: a run that is resumed continues with the batch after the last one.

A position is the number of a pass and of the batches taken in it. Readers shuffle with Python's or NumPy's global
random numbers, so it has their state at the beginning of the pass, too: with it, the same pass comes again, and the
batches that were taken are left out. A generator in a process of its own gets numbers that are drawn for it here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np


class Position:
    """The position of one reader: who reads calls `begin`, `took` after each batch, and `ended` after the last one."""

    def __init__(self) -> None:
        self._epoch = self._batch = 0
        self._random: dict[str, Any] | None = None  # at the beginning of the pass
        self._in_pass = self._is_loaded = False

    @property
    def epoch(self) -> int:
        """The number of this pass, or of the next one between two."""
        return self._epoch

    @property
    def batch(self) -> int:
        """How many batches of the pass were taken."""
        return self._batch

    @property
    def to_skip(self) -> int:
        """How many batches a pass that begins now leaves out: those that were taken before the position was saved."""
        return self._batch if self._is_loaded else 0

    def begin(self) -> int:
        """Begins a pass; returns how many batches to leave out, as `to_skip`."""
        if self._is_loaded:
            self._is_loaded = False
            if self._random is not None:
                restore_random_state(self._random)
        elif self._in_pass:  # the pass before was left early
            self._epoch, self._batch = self._epoch + 1, 0
        self._in_pass, self._random = True, random_state()
        return self._batch

    def took(self) -> None:
        """Counts a batch."""
        self._batch += 1

    def ended(self) -> None:
        """Ends the pass: everything was read."""
        self._epoch, self._batch = self._epoch + 1, 0
        self._in_pass, self._random = False, None

    def state_dict(self) -> dict[str, Any]:
        """The position, to be saved after the step that used the last batch; can be written as JSON."""
        is_between = not self._in_pass and not self._is_loaded  # the next pass begins with the numbers of now
        return {"epoch": self._epoch, "batch": self._batch, "random": random_state() if is_between else self._random}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next pass continue at a saved position.

        Raises:
          ValueError: this is no position.
        """
        try:
            epoch, batch, random = (state[name] for name in ("epoch", "batch", "random"))
            if min(epoch, batch) < 0 or (random is not None and random.keys() != {"python", "numpy"}):
                raise ValueError
        except (TypeError, KeyError, ValueError, AttributeError):
            raise ValueError(f"expected what state_dict() returned, got {str(state)[:200]}") from None
        self._epoch, self._batch, self._random = epoch, batch, random
        self._in_pass, self._is_loaded = False, True


def draw_seeds() -> tuple[int, int]:
    """Numbers for `use_seeds` in another process; drawn, so that each pass has others, and follow a restored state."""
    return random.getrandbits(64), int(np.random.randint(2**32, dtype=np.uint32))


def use_seeds(seeds: tuple[int, int]) -> None:
    """Seeds `random` and `numpy.random`. Python itself reseeds only `random` in a forked process, and at random."""
    random.seed(seeds[0])
    np.random.seed(seeds[1])


def random_state() -> dict[str, Any]:
    """The states of `random` and `numpy.random`, which readers shuffle with, as JSON."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
    }


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Resumes `random` and `numpy.random` where `random_state` was taken."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), position, has_gauss, cached))
