"""Flowers: JPEG pictures whose class is a colour and a pattern of stripes, and the MAT files that label them."""

from __future__ import annotations

import io
import struct
from functools import lru_cache
from typing import Any

import numpy as np

from refluid.readers.synthetic.archives import tar
from refluid.readers.synthetic.pictures import striped

_CLASSES, _EACH = 102, 3
_COUNT = _CLASSES * _EACH


def _labels() -> np.ndarray:
    return np.random.RandomState(71).permutation(np.repeat(np.arange(1, _CLASSES + 1), _EACH))


@lru_cache(maxsize=1)
def pictures(image: Any) -> bytes:
    """102flowers.tgz: pictures of 48 x 64 pixels, written by ``image``, which is PIL.Image."""
    files = {}
    for number, pixels in enumerate(striped(_labels() - 1, 48, 64, 72), 1):
        stream = io.BytesIO()
        image.fromarray(pixels).save(stream, "JPEG", quality=90)
        files[f"jpg/image_{number:05d}.jpg"] = stream.getvalue()
    return tar(files)


def labels() -> bytes:
    """imagelabels.mat: the class of every picture, from 1 on."""
    return _mat({"labels": _labels()})


def sets() -> bytes:
    """setid.mat: the numbers of the pictures in the three sets, which have nothing in common."""
    order = np.random.RandomState(73).permutation(np.arange(1, _COUNT + 1))
    return _mat({"trnid": np.sort(order[:51]), "valid": np.sort(order[51:102]), "tstid": order[102:]})


def _mat(rows: dict[str, np.ndarray]) -> bytes:
    """A MATLAB 5 file of matrices with one row each."""
    text = b"MATLAB 5.0 MAT-file".ljust(116) + bytes(8)
    return text + struct.pack("<H2s", 0x0100, b"IM") + b"".join(_matrix(name, row) for name, row in rows.items())


def _matrix(name: str, row: np.ndarray) -> bytes:
    flags = _element(6, struct.pack("<II", 6, 0))  # of class double
    shape = _element(5, struct.pack("<ii", 1, len(row)))
    return _element(14, flags + shape + _element(1, name.encode("ascii")) + _element(4, row.astype("<u2").tobytes()))


def _element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)
