"""Arrays of the host, exchanged between the processes of a job outside of programs."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from refluid.runtime.collective.group import Group


def gather(group: Group, array: Any) -> np.ndarray:
    """The arrays of all ranks, stacked in the order of ranks; they have one shape and dtype."""
    with group.step(), jax.enable_x64(True):
        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        mesh = Mesh(np.array(devices).reshape(jax.process_count(), -1), ("processes", "devices"))
        by_process, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["processes"], []))
        given = jax.make_array_from_process_local_data(by_process, np.asarray(array)[None])
        gathered = jax.jit(_same, out_shardings=everywhere)(given)
        return np.asarray(jax.block_until_ready(gathered).addressable_data(0))  # when all devices here have it


def _same(x: Any) -> Any:
    return x


def await_devices() -> None:
    """Returns when the devices of this process have computed what programs have asked them for.

    Until then they may need the other ranks: a step without fetches returns as soon as it has begun.
    """
    with contextlib.suppress(RuntimeError):  # what cannot be computed is not needed any more
        jax.block_until_ready([array for array in jax.live_arrays() if not array.is_deleted()])


def gather_texts(group: Group, text: str) -> list[str]:
    """The texts of all ranks, in the order of ranks."""
    content = np.frombuffer(text.encode(), np.uint8)
    lengths = gather(group, np.array(content.size))
    padded = np.zeros(lengths.max(), np.uint8)
    padded[: content.size] = content
    return [bytes(row[:length]).decode() for row, length in zip(gather(group, padded), lengths, strict=True)]
