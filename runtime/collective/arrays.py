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


def gather_texts(group: Group, text: str) -> list[str]:
    """The texts of all ranks, in the order of ranks."""
    content = np.frombuffer(text.encode(), np.uint8)
    lengths = gather(group, np.array(content.size))
    padded = np.zeros(lengths.max(), np.uint8)
    padded[: content.size] = content
    return [bytes(row[:length]).decode() for row, length in zip(gather(group, padded), lengths, strict=True)]
