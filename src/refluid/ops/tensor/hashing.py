"""xxHash of rows of integers, bit-identical to Fluid's, in wrapping arithmetic; the hash op."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from refluid.ops.core.registry import op

# The primes of XXH64.
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def _rotate(x: Any, bits: int) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _round(lane: Any, word: Any) -> Any:
    return _rotate(lane + word * _P2, 31) * _P1


def xxhash64(words: list[Any], half_word: Any, seed: int) -> Any:
    """XXH64 of rows of bytes: ``words`` are columns of 8-byte words, ``half_word`` an optional last 4 bytes."""
    with np.errstate(over="ignore"):
        start = np.uint64(seed)
        lanes = [start + _P1 + _P2, start + _P2, start, start - _P1]
        short = start + _P5
    length = np.uint64(8 * len(words) + (0 if half_word is None else 4))
    stripes = len(words) // 4
    if stripes:
        for i in range(4 * stripes):
            lanes[i % 4] = _round(lanes[i % 4], words[i])
        digest = sum((_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint64(0))
        for lane in lanes:
            digest = (digest ^ _round(np.uint64(0), lane)) * _P1 + _P4
    else:
        digest = short
    digest = digest + length
    for word in words[4 * stripes :]:
        digest = _rotate(digest ^ _round(np.uint64(0), word), 27) * _P1 + _P4
    if half_word is not None:
        digest = _rotate(digest ^ (half_word * _P1), 23) * _P2 + _P3
    digest = (digest ^ (digest >> np.uint64(33))) * _P2
    digest = (digest ^ (digest >> np.uint64(29))) * _P3
    return digest ^ (digest >> np.uint64(32))


_Q1, _Q2, _Q3, _Q4, _Q5 = (  # the primes of XXH32
    np.uint32(prime) for prime in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
)


def _rotate32(x: Any, bits: int) -> Any:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def xxhash32(words: list[Any], seed: int) -> Any:
    """XXH32 of rows of bytes; ``words`` are columns of 4-byte words."""
    with np.errstate(over="ignore"):
        start = np.uint32(seed)
        lanes = [start + _Q1 + _Q2, start + _Q2, start, start - _Q1]
        digest = start + _Q5
    stripes = len(words) // 4
    if stripes:
        for i in range(4 * stripes):
            lanes[i % 4] = _rotate32(lanes[i % 4] + words[i] * _Q2, 13) * _Q1
        digest = sum((_rotate32(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint32(0))
    digest = digest + np.uint32(4 * len(words))
    for word in words[4 * stripes :]:
        digest = _rotate32(digest + word * _Q3, 17) * _Q4
    digest = (digest ^ (digest >> np.uint32(15))) * _Q2
    digest = (digest ^ (digest >> np.uint32(13))) * _Q3
    return digest ^ (digest >> np.uint32(16))


def _columns(x: Any) -> tuple[list[Any], Any]:
    """The bytes of each row as little-endian 8-byte words, and the last 4 bytes, if any are left."""
    if x.dtype.itemsize == 8:
        return [x[..., i].astype(jnp.uint64) for i in range(x.shape[-1])], None
    halves = [x[..., i].astype(jnp.uint32).astype(jnp.uint64) for i in range(x.shape[-1])]
    words = [low | (high << np.uint64(32)) for low, high in zip(halves[0::2], halves[1::2], strict=False)]
    return words, halves[-1] if len(halves) % 2 else None


@op("hash", inputs="X", outputs="Out", grad=None, row_wise=True)
def hash_(x, *, num_hash=1, mod_by=100000):
    """``num_hash`` numbers in [0, mod_by) for each row of x: its xxHash with seeds 0, 1, ..."""
    if x.ndim < 2 or x.dtype not in (jnp.int32, jnp.int64):
        raise ValueError(f"X must be integer rows, not {x.dtype} of shape {list(x.shape)}")
    words, half_word = _columns(x)
    digests = jnp.stack([xxhash64(words, half_word, seed) for seed in range(num_hash)], -1)
    return (digests % np.uint64(mod_by)).astype(x.dtype)[..., None]
