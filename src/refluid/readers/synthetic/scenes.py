"""Pascal VOC 2012: pictures of coloured boxes, and which pixel belongs to which class."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np

from refluid.readers.synthetic.archives import tar

_HEIGHT, _WIDTH = 60, 80
_PARTS = {"train": 12, "val": 6}
_ROOT = "VOCdevkit/VOC2012"
_BORDER = 255  # the label of pixels that count for no class


@lru_cache(maxsize=1)
def voc2012(image: Any) -> bytes:
    """VOCtrainval_11-May-2012.tar: lists, pictures and labels, encoded by ``image``, which is PIL.Image."""
    random = np.random.RandomState(81)
    palette = np.random.RandomState(82).randint(0, 256, (256, 3)).astype(np.uint8)
    names = {part: [f"2012_{part}{number:03d}" for number in range(count)] for part, count in _PARTS.items()}
    names["trainval"] = names["train"] + names["val"]
    files = {f"{_ROOT}/ImageSets/Segmentation/{part}.txt": _lines(listed) for part, listed in names.items()}
    for name in names["trainval"]:
        labels = _scene(random)
        colours = palette[np.where(labels == _BORDER, 0, labels)].astype(int)
        noisy = (colours + random.randint(-10, 11, colours.shape)).clip(0, 255).astype(np.uint8)
        files[f"{_ROOT}/JPEGImages/{name}.jpg"] = _encoded(image.fromarray(noisy), "JPEG", quality=90)
        indexed = image.fromarray(labels, "L").convert("P")
        indexed.putdata(labels.reshape(-1).tolist())
        indexed.putpalette(palette.reshape(-1).tolist())
        files[f"{_ROOT}/SegmentationClass/{name}.png"] = _encoded(indexed, "PNG")
    return tar(files, compressed=False)


def _scene(random: np.random.RandomState) -> np.ndarray:
    """Labels of two boxes with a border, on background."""
    labels = np.zeros((_HEIGHT, _WIDTH), np.uint8)
    for _ in range(2):
        top, left = random.randint(5, 30), random.randint(5, 45)
        bottom, right = top + random.randint(12, 25), left + random.randint(12, 30)
        labels[top - 1 : bottom + 1, left - 1 : right + 1] = _BORDER
        labels[top:bottom, left:right] = random.randint(1, 21)
    return labels


def _encoded(picture: Any, form: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, form, **options)
    return stream.getvalue()


def _lines(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode("ascii")
