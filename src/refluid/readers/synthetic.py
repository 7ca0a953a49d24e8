"""Small synthetic datasets in the format of the real ones, for machines without a network.

The environment variable REFLUID_SYNTHETIC_DATA=1 makes every dataset of `paddle.dataset` read these bytes instead of
downloaded files; the same parser reads both. The content is the same in every run, and a model can learn it.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache

import numpy as np

SWITCH = "REFLUID_SYNTHETIC_DATA"


def wanted() -> bool:
    """Whether the user asked for synthetic data."""
    return os.environ.get(SWITCH, "") not in ("", "0", "false", "False")


# The range of each feature of the Boston housing data, and its weight in the price.
_FEATURES = [
    (0.0, 90.0, -6.0),
    (0.0, 100.0, 3.0),
    (0.5, 28.0, -1.0),
    (0.0, 1.0, 2.0),
    (0.4, 0.9, -4.0),
    (3.5, 8.8, 14.0),
    (3.0, 100.0, 0.0),
    (1.1, 12.0, -5.0),
    (1.0, 24.0, 2.0),
    (187.0, 711.0, -3.0),
    (12.6, 22.0, -5.0),
    (0.3, 397.0, 2.0),
    (1.7, 38.0, -12.0),
]


@lru_cache(maxsize=1)
def housing_text() -> str:
    """Lines of 13 features and a price, as in housing.data; the price is nearly linear in the features."""
    random = np.random.RandomState(13)
    low, high, weight = np.array(_FEATURES).T
    share = random.uniform(0, 1, (506, len(_FEATURES)))
    price = 22.5 + (share - 0.5) @ weight + random.normal(0, 1, 506)
    rows = np.column_stack([low + share * (high - low), price.clip(5, 50)])
    return "\n".join(" ".join(f"{value:9.4f}" for value in row) for row in rows) + "\n"


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
def digits(count: int, seed: int) -> tuple[bytes, bytes]:
    """The two idx files of MNIST, pictures and labels: ``count`` seven-segment digits, shifted, dimmed and noisy."""
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
    return images, struct.pack(">2i", 2049, count) + labels.astype(np.uint8).tobytes()
