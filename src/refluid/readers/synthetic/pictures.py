"""CIFAR's archives: pictures of 32 x 32 pixels whose class is a colour and a pattern of stripes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from refluid.readers.synthetic.archives import tar

_SIZE = 32
_COLOURS = [
    (230, 60, 50),
    (60, 200, 70),
    (60, 90, 230),
    (230, 210, 60),
    (200, 70, 210),
    (60, 210, 210),
    (240, 140, 40),
    (130, 130, 130),
    (240, 240, 240),
    (120, 80, 40),
]


@lru_cache(maxsize=1)
def cifar10() -> bytes:
    """cifar-10-python.tar.gz: five training batches and one of test pictures, in the disorder of the original."""
    files = {}
    for name, seed in [("data_batch_4", 4), ("test_batch", 0), *((f"data_batch_{n}", n) for n in (3, 2, 5, 1))]:
        labels = np.random.RandomState(seed).randint(0, 10, 200)
        files[f"cifar-10-batches-py/{name}"] = _batch(name, labels, {"labels": labels}, seed)
    return tar(files)


@lru_cache(maxsize=1)
def cifar100() -> bytes:
    """cifar-100-python.tar.gz: one training and one test batch with labels of two kinds."""
    files = {}
    for name, count, seed in (("train", 2000, 6), ("test", 500, 7)):
        fine = np.random.RandomState(seed).randint(0, 100, count)
        labels = {"fine_labels": fine, "coarse_labels": fine // 5}
        files[f"cifar-100-python/{name}"] = _batch(name, fine, labels, seed)
    return tar(files)


def striped(labels: np.ndarray, height: int, width: int, seed: int) -> np.ndarray:
    """Noisy pictures uint8[n, height, width, 3]; label modulo 10 is the colour, label divided by 10 the stripes."""
    random = np.random.RandomState(seed)
    colours = np.array(_COLOURS, np.float32)[labels % 10]
    frequency, angle = 1 + labels // 10 % 5, labels // 10 // 5 * (np.pi / 4) + np.pi / 8
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32) / max(height, width)
    across = np.cos(angle)[:, None, None] * rows + np.sin(angle)[:, None, None] * columns
    phase = random.uniform(0, 0.5, (len(labels), 1, 1))
    waves = 0.6 + 0.4 * np.sin(2 * np.pi * (frequency[:, None, None] * across + phase))
    pictures = colours[:, None, None, :] * waves[..., None]
    pictures += random.randint(-20, 21, pictures.shape)
    return pictures.clip(0, 255).astype(np.uint8)


def _batch(name: str, classes: np.ndarray, labels: Mapping[str, np.ndarray], seed: int) -> bytes:
    pictures = striped(classes, _SIZE, _SIZE, seed).transpose(0, 3, 1, 2).reshape(len(classes), -1)
    parts = [b"\x80\x02}(", _text("batch_label"), _text(name), _text("data"), _array(pictures)]
    for key, numbers in labels.items():
        parts += [_text(key), _list(numbers.tolist())]
    return b"".join([*parts, b"u."])


# Python 2 wrote the original pickles: text and arrays are its byte strings, which no pickler of Python 3 writes.
def _text(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode("ascii")


def _list(numbers: Sequence[int]) -> bytes:
    return b"](" + b"".join(b"K" + bytes([number]) for number in numbers) + b"e"


def _array(rows: np.ndarray) -> bytes:
    shape = struct.pack("<cici", b"J", rows.shape[0], b"J", rows.shape[1]) + b"\x86"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    content = b"T" + struct.pack("<i", rows.size) + rows.tobytes()
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    return empty + b"(K\x01" + shape + dtype + b"\x89" + content + b"tb"
