"""Boxes around every cell of a feature map, from which detectors predict offsets.

They depend on sizes only, never on values. Sizes of boxes and centers of cells are computed by NumPy in float32, in
Fluid's order of operations; the results are float64 if the feature map is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op

Floats = Sequence[float]


@op("prior_box", inputs="Input Image", outputs="Boxes Variances", grad=None, constant=True, lod=None)
def prior_box(
    x,
    image,
    *,
    min_sizes,
    max_sizes=(),
    aspect_ratios=(1.0,),
    variances=(0.1, 0.1, 0.2, 0.2),
    flip=True,
    clip=True,
    step_w=0.0,
    step_h=0.0,
    offset=0.5,
    min_max_aspect_ratios_order=False,
):
    """SSD's priors: boxes of every size and shape at every cell, in units of the image."""
    if max_sizes and len(max_sizes) != len(min_sizes):
        raise ValueError(f"there are {len(max_sizes)} max_sizes for {len(min_sizes)} min_sizes")
    ratios = _distinct_ratios(aspect_ratios, flip)
    sides = _prior_sides(min_sizes, max_sizes, ratios, min_max_aspect_ratios_order)
    across, down, _ = _centers(x, image, step_w, step_h, offset)
    half = sides / np.float32(2)
    boxes = _around(across, down, half, image)
    return _with_variances(x, jnp.clip(boxes, 0, 1) if clip else boxes, variances)


def _distinct_ratios(aspect_ratios: Floats, flip: bool) -> list[np.float32]:
    """1, then the others; near duplicates are dropped, and flipped shapes added."""
    found = [np.float32(1)]
    for ratio in map(np.float32, aspect_ratios):
        if all(abs(ratio - known) >= 1e-6 for known in found):
            found += [ratio, np.float32(1) / ratio] if flip else [ratio]
    return found


def _prior_sides(min_sizes: Floats, max_sizes: Floats, ratios: Sequence[np.float32], max_second: bool) -> np.ndarray:
    sides: list[Any] = []
    for i, smallest in enumerate(map(np.float32, min_sizes)):
        shapes = [(smallest * np.sqrt(ratio), smallest / np.sqrt(ratio)) for ratio in ratios]
        between = [(np.sqrt(smallest * np.float32(size)),) * 2 for size in max_sizes[i : i + 1]]
        sides += [shapes[0], *between, *shapes[1:]] if max_second else [*shapes, *between]
    return np.array(sides, np.float32)


def _infer_density(inputs: Described, attrs: dict[str, Any]) -> Described:
    x = inputs["Input"][0]
    height, width = x.shape[2:]
    count = sum(density**2 for density in attrs["densities"]) * len(attrs["fixed_ratios"])
    # Fluid does not say how many boxes there are if they are flattened.
    shape = (-1, 4) if attrs.get("flatten_to_2d") else (height, width, count, 4)
    return {slot: [ShapeDtype(shape, _dtype_for(x))] for slot in ("Boxes", "Variances")}


@op(
    "density_prior_box",
    inputs="Input Image",
    outputs="Boxes Variances",
    grad=None,
    constant=True,
    lod=None,
    infer=_infer_density,
)
def density_prior_box(
    x,
    image,
    *,
    densities=(),
    fixed_sizes=(),
    fixed_ratios=(),
    variances=(0.1, 0.1, 0.2, 0.2),
    clip=True,
    flatten_to_2d=False,
    step_w=0.0,
    step_h=0.0,
    offset=0.5,
):
    """Priors that are spread over their cell, density by density of them, in units of the image."""
    if len(densities) != len(fixed_sizes):
        raise ValueError(f"there are {len(densities)} densities for {len(fixed_sizes)} fixed_sizes")
    across, down, steps = _centers(x, image, step_w, step_h, offset)
    average = int((steps[0] + steps[1]) * np.float32(0.5))
    sides: list[Any] = []
    shifts: list[Any] = []
    for size, density in zip(fixed_sizes, densities, strict=True):
        shift = average // density
        places = [-average / 2 + shift / 2 + i * shift for i in range(density)]
        for ratio in map(np.sqrt, np.array(fixed_ratios, np.float32)):
            sides += [(np.float32(size) * ratio, np.float32(size) / ratio)] * density**2
            shifts += [(right, lower) for lower in places for right in places]
    half, moved = np.array(sides, np.float32) / np.float32(2), np.array(shifts, np.float32)
    boxes = jnp.clip(_around(across[:, None] + moved[:, 0], down[:, None] + moved[:, 1], half, image), 0, 1)
    boxes, variances = _with_variances(x, boxes, variances)
    return (boxes.reshape(-1, 4), variances.reshape(-1, 4)) if flatten_to_2d else (boxes, variances)


@op("anchor_generator", inputs="Input", outputs="Anchors Variances", grad=None, constant=True, lod=None)
def anchor_generator(
    x, *, anchor_sizes=(), aspect_ratios=(), variances=(0.1, 0.1, 0.2, 0.2), stride=(16.0, 16.0), offset=0.5
):
    """Faster R-CNN's anchors: boxes of every size and shape at every cell, in pixels."""
    if len(stride) != 2:
        raise ValueError(f"stride must have 2 numbers, for width and height, but has {len(stride)}")
    height, width = _cells(x, "Input")
    wide, high = map(np.float32, stride)
    sides: list[Any] = []
    for ratio in map(np.float32, aspect_ratios):
        base = np.floor(np.sqrt(wide * high / ratio) + np.float32(0.5))
        tall = np.floor(base * ratio + np.float32(0.5))
        sides += [(np.float32(size) / wide * base, np.float32(size) / high * tall) for size in anchor_sizes]
    half = np.float32(0.5) * (np.array(sides, np.float32) - np.float32(1))
    across = np.arange(width, dtype=np.float32) * wide + np.float32(offset) * (wide - np.float32(1))
    down = np.arange(height, dtype=np.float32) * high + np.float32(offset) * (high - np.float32(1))
    return _with_variances(x, _around(across, down, half), variances)


def _cells(x: Any, slot: str) -> tuple[int, int]:
    if x.ndim != 4:
        raise ValueError(f"{slot} must have 4 dims, NCHW, but has shape {list(x.shape)}")
    return x.shape[2:]


def _centers(
    x: Any, image: Any, step_w: float, step_h: float, offset: float
) -> tuple[np.ndarray, np.ndarray, tuple[np.float32, np.float32]]:
    """The centers of columns and of rows in pixels, and their distances; those of the image, unless both are given."""
    height, width = _cells(x, "Input")
    image_height, image_width = _cells(image, "Image")
    if step_w == 0 or step_h == 0:
        steps = np.float32(image_width) / np.float32(width), np.float32(image_height) / np.float32(height)
    else:
        steps = np.float32(step_w), np.float32(step_h)
    across, down = (
        (np.arange(count, dtype=np.float32) + np.float32(offset)) * step
        for count, step in zip((width, height), steps, strict=True)
    )
    return across, down, steps


def _around(across: np.ndarray, down: np.ndarray, half: np.ndarray, image: Any = None) -> Any:
    """Boxes [height, width, boxes, 4] with these centers and halves of sides; in units of an image, if there is one.

    Centers are [width] and [height], or have a second dim if they differ between the boxes of a cell.
    """
    units = (1, 1) if image is None else (image.shape[3], image.shape[2])
    sides = []
    for centers, extent, unit in zip((across, down), half.T, units, strict=True):
        centers = centers.reshape(len(centers), -1)
        sides.append([(centers + sign * extent) / np.float32(unit) for sign in (np.float32(-1), np.float32(1))])
    (left, right), (top, bottom) = sides
    shape = (len(down), len(across), len(half))
    columns = [jnp.broadcast_to(side[None], shape) for side in (left, right)]
    rows = [jnp.broadcast_to(side[:, None], shape) for side in (top, bottom)]
    return jnp.stack([columns[0], rows[0], columns[1], rows[1]], -1)


def _with_variances(x: Any, boxes: Any, variances: Floats) -> tuple[Any, Any]:
    if len(variances) != 4:
        raise ValueError(f"variances must have 4 numbers, but has {len(variances)}")
    dtype = _dtype_for(x)
    return boxes.astype(dtype), jnp.broadcast_to(np.array(variances, np.float32).astype(dtype), boxes.shape)


def _dtype_for(x: Any) -> np.dtype:
    return np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
