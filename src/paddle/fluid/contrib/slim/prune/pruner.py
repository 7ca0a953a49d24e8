"""Which slices of a parameter matter least, and how they are removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refluid.compression.channels import remove
from refluid.compression.importance import least_important

__all__ = ["Pruner", "StructurePruner"]


class Pruner:
    """What all pruners are."""

    def prune(self, param: np.ndarray) -> np.ndarray:
        """Subclasses say how a parameter is pruned."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a parameter is pruned")


class StructurePruner(Pruner):
    """Removes whole channels, those with the smallest norm.

    Args:
      pruning_axis: parameter -> axis; ``*`` stands for all others.
      criterions: parameter -> ``l1_norm``; ``*`` stands for all others.
    """

    def __init__(self, pruning_axis: Mapping[str, int], criterions: Mapping[str, str]):
        self.pruning_axis, self.criterions = pruning_axis, criterions
        for name, criterion in criterions.items():
            if criterion != "l1_norm":
                raise ValueError(f"the criterion of {name} is {criterion!r}; StructurePruner knows l1_norm")

    def cal_pruned_idx(self, name: str, param: np.ndarray, ratio: float, axis: int | None = None) -> np.ndarray:
        """The slices to remove from a parameter, least important first.

        Args:
          ratio: which part of the slices is removed.
          axis: overrides ``pruning_axis``.
        """
        _of(self.criterions, name)
        return least_important(param, ratio, int(_of(self.pruning_axis, name)) if axis is None else axis)

    def prune_tensor(
        self, tensor: np.ndarray, pruned_idx: Sequence[int], pruned_axis: int, lazy: bool = False
    ) -> np.ndarray:
        """A tensor without these slices; with zeros there if ``lazy``."""
        return remove(tensor, pruned_idx, pruned_axis, lazy=lazy)


def _of(options: Mapping[str, Any], name: str) -> Any:
    found = options.get(name, options.get("*"))
    if found is None:
        raise KeyError(f"StructurePruner has no option for {name} and none for *")
    return found
