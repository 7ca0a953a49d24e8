"""Arrays of the host, exchanged between the processes of a job outside of programs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from refluid.runtime.collective.group import Group


def gather(group: Group, array: Any) -> np.ndarray:
    """The arrays of all ranks, stacked in the order of ranks; they have one shape and dtype."""
    with group.step(), jax.enable_x64(True):
        return np.asarray(multihost_utils.process_allgather(np.asarray(array), tiled=False))
