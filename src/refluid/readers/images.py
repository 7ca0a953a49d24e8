"""Pictures as arrays, with the numbers of OpenCV: blue, green, red; cubic resizing in fixed point.

Decoding needs the package Pillow.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np

_SCALE = np.float32(1 / 2048)  # of weights in fixed point


def library() -> Any:
    """PIL.Image, or an error that names the package to install."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise ImportError(
            "pictures need the package Pillow: pip install pillow, or refluid with its extra [image]"
        ) from error


def decode(content: bytes, *, is_color: bool, name: str = "the picture") -> np.ndarray:
    """The pixels of an encoded picture: uint8[height, width, 3] in the order blue, green, red, or uint8[height, width].

    Raises:
      ValueError: the bytes are not a picture.
    """
    pillow = library()
    try:
        picture = pillow.open(io.BytesIO(content))
        if not is_color and picture.format == "JPEG":
            picture.draft("L", None)  # a JPEG's brightness is stored; computing it from colours would round twice
        picture = importlib.import_module("PIL.ImageOps").exif_transpose(picture)
        if picture.mode.startswith("I;16"):
            picture = pillow.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
        pixels = np.asarray(picture if picture.mode == "L" else picture.convert("RGB"))
    except (OSError, SyntaxError, pillow.DecompressionBombError) as error:
        raise ValueError(f"{name} cannot be decoded: {error}") from error
    if pixels.ndim == 2:
        return np.repeat(pixels[:, :, None], 3, axis=2) if is_color else pixels.copy()
    return np.ascontiguousarray(pixels[:, :, ::-1]) if is_color else _brightness(pixels)


def _brightness(pixels: np.ndarray) -> np.ndarray:
    red, green, blue = pixels.astype(np.int32).transpose(2, 0, 1)
    return ((red * 9797 + green * 19234 + blue * 3737) >> 15).astype(np.uint8)


def resize(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture in another size, by cubic interpolation between pixels; equal to OpenCV's in all bits for uint8."""
    planes = pixels[:, :, None] if pixels.ndim == 2 else pixels
    rows, row_weights = _cubic(pixels.shape[0], height)
    columns, column_weights = _cubic(pixels.shape[1], width)
    if pixels.dtype == np.uint8:
        planes = planes.astype(np.int32)
        row_weights = _fixed(row_weights).astype(np.float32) * _SCALE**2
        column_weights = _fixed(column_weights)
    wide = sum(planes[:, columns[:, tap]] * column_weights[None, :, tap, None] for tap in range(4))
    # Columns in fixed point, rows in float32 from the last tap to the first: any other order rounds differently.
    wide = np.asarray(wide, np.float32)
    result = np.zeros((height, *wide.shape[1:]), np.float32)
    for tap in (3, 2, 1, 0):
        result += wide[rows[:, tap]] * row_weights[:, tap, None, None]
    if pixels.dtype == np.uint8:
        result = np.rint(result).clip(0, 255)
    result = result.astype(pixels.dtype)
    return result[:, :, 0] if pixels.ndim == 2 else result


def _fixed(weights: np.ndarray) -> np.ndarray:
    return np.rint(weights / _SCALE).astype(np.int32)


def _cubic(size: int, new_size: int) -> tuple[np.ndarray, np.ndarray]:
    """For each new pixel, the four old ones around it, and their weights in float32; edges are repeated."""
    position = ((np.arange(new_size) + 0.5) * (size / new_size) - 0.5).astype(np.float32)
    before = np.floor(position).astype(np.int64)
    x = position - before.astype(np.float32)
    a = np.float32(-0.75)
    far = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a
    near, after = (((a + 2) * t - (a + 3)) * t * t + 1 for t in (x, 1 - x))
    weights = np.stack([far, near, after, 1 - far - near - after], axis=1)
    return np.clip(before[:, None] + np.arange(-1, 3), 0, size - 1), weights.astype(np.float32)
