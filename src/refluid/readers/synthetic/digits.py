"""Digits as seven-segment displays."""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np

from refluid.readers.synthetic.archives import gz

# Which of seven segments (top, middle, bottom, upper left, upper right, lower left, lower right) each digit lights.
_DIGITS = ["1011111", "0000101", "1110110", "1110101", "0101101", "1111001", "1111011", "1000101", "1111111", "1111101"]
_SEGMENTS = [
    (slice(4, 7), slice(9, 19)),
    (slice(13, 16), slice(9, 19)),
    (slice(22, 25), slice(9, 19)),
    (slice(4, 16), slice(8, 11)),
    (slice(4, 16), slice(17, 20)),
    (slice(13, 25), slice(8, 11)),
    (slice(13, 25), slice(17, 20)),
]


@lru_cache(maxsize=4)
def mnist(count: int, seed: int) -> tuple[bytes, bytes]:
    """The gzipped idx files of MNIST, pictures and labels: seven-segment digits, shifted, dimmed and noisy."""
    random = np.random.RandomState(seed)
    glyphs = np.zeros((10, 28, 28), np.float32)
    for glyph, lit in zip(glyphs, _DIGITS, strict=True):
        for segment, on in zip(_SEGMENTS, lit, strict=True):
            glyph[segment] = np.maximum(glyph[segment], int(on))
    labels = random.randint(0, 10, count)
    rows, columns = (np.arange(28) - random.randint(-3, 4, (2, count, 1))) % 28
    pictures = glyphs[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
    pictures *= random.uniform(120, 255, (count, 1, 1))
    pictures += random.randint(0, 80, pictures.shape)
    images = struct.pack(">4i", 2051, count, 28, 28) + pictures.clip(0, 255).astype(np.uint8).tobytes()
    return gz(images), gz(struct.pack(">2i", 2049, count) + labels.astype(np.uint8).tobytes())
