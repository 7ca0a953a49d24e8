"""Random numbers that cost next to nothing on CPU.

Each number is a hash of its position in the array, keyed by the data of a jax.random key. The hash fuses into the code
that uses the numbers: dropout over 64x512x64 takes 1.9 ms, compared to 42 ms with threefry and 50 ms with rbg, whose
code XLA does not fuse on CPU. Good enough for masks and initial values, not for cryptography.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Multiplier and shift of each round of the "triple32" integer hash (Christopher Wellons' search, public domain).
_ROUNDS = ((0xED5AD4BB, 17), (0xAC4C1B51, 11), (0x31848BAB, 15))
_LAST_SHIFT = 14
_FOLD = (0x9E3779B9, 0x85EBCA6B)  # separates derived key data from the numbers drawn


def bits(key: Any, shape: Sequence[int]) -> Any:
    """Uniform 32-bit integers."""
    places = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(tuple(shape))
    return _hash(words(key), places)


def fold_in(key: Any, number: Any) -> Any:
    """A new key from a key and an integer, like jax.random.fold_in, at no measurable cost."""
    first, second = words(key)
    number = np.uint32(number) if isinstance(number, int) else number  # more than JAX's own integers hold by default
    places = jnp.asarray(number).astype(jnp.uint32) * 2 + np.arange(2, dtype=np.uint32)
    return jax.random.wrap_key_data(_hash((first ^ np.uint32(_FOLD[0]), second ^ np.uint32(_FOLD[1])), places))


def keep_mask(key: Any, drop_probability: float, shape: Sequence[int]) -> Any:
    """True with probability 1 - ``drop_probability``."""
    if drop_probability >= 1.0:
        return jnp.zeros(tuple(shape), bool)
    return bits(key, shape) >= np.uint32(min(round(drop_probability * 2.0**32), 2**32 - 1))


def uniform(key: Any, shape: Sequence[int], dtype: Any, low: float = 0.0, high: float = 1.0) -> Any:
    """Uniform in [low, high)."""
    if np.dtype(dtype) == np.float64:
        fraction = (_bits64(key, shape) >> np.uint64(11)).astype(jnp.float64) * 2.0**-53
    else:
        fraction = (bits(key, shape) >> np.uint32(8)).astype(jnp.float32) * 2.0**-24
    return (fraction * (high - low) + low).astype(dtype)


def normal(key: Any, shape: Sequence[int], dtype: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Normal with ``mean`` and ``std``."""
    return _normal_between(key, shape, dtype, -1.0, 1.0) * std + mean


def truncated_normal(key: Any, shape: Sequence[int], dtype: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Normal, truncated at two standard deviations from the mean."""
    edge = math.erf(2.0 / math.sqrt(2.0))
    return _normal_between(key, shape, dtype, -edge, edge) * std + mean


def integers(key: Any, shape: Sequence[int], dtype: Any, low: int, high: int) -> Any:
    """Integers in [low, high)."""
    return (_bits64(key, shape) % np.uint64(high - low)).astype(dtype) + low


def _normal_between(key: Any, shape: Sequence[int], dtype: Any, low: float, high: float) -> Any:
    """Standard normal by inverting erf on (low, high); half a step keeps it off the infinite ends."""
    half_step = 2.0**-54 if np.dtype(dtype) == np.float64 else 2.0**-25
    middle = uniform(key, shape, dtype) + half_step
    return jax.lax.erf_inv(jnp.clip(middle, half_step, 1.0 - 2 * half_step) * (high - low) + low) * math.sqrt(2.0)


def words(key: Any) -> tuple[Any, Any]:
    """Two integers that depend on all of the key data, so that similar keys give unrelated numbers."""
    data = jax.random.key_data(key).reshape(-1)
    first = _mix(data[0])
    return first, _mix(data[-1] ^ first)


def _hash(words: tuple[Any, Any], places: Any) -> Any:
    return _mix(places + words[0], words[1])


def _mix(value: Any, word: Any = None) -> Any:
    for number, (multiplier, shift) in enumerate(_ROUNDS):
        value = (value ^ (value >> np.uint32(shift))) * np.uint32(multiplier)
        if number == 0 and word is not None:
            value = value ^ word  # between rounds, so that two keys differ by more than a shift of positions
    return value ^ (value >> np.uint32(_LAST_SHIFT))


def _bits64(key: Any, shape: Sequence[int]) -> Any:
    high, low = bits(key, shape), bits(fold_in(key, 1), shape)
    return (high.astype(jnp.uint64) << np.uint64(32)) | low.astype(jnp.uint64)
