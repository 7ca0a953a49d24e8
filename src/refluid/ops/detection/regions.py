"""Regions of interest: which image each belongs to, and weighted sums over their bins.

Regions are rows of boxes, a sequence for each image; how many there are is not known while compiling, so rows may be
padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from refluid import kernels
from refluid.ops.core.infer import Described, Infer, ShapeDtype
from refluid.ops.core.values import Ragged, last_at_most, plain
from refluid.ops.detection.boxes import round_half_up
from refluid.ops.sequence.packing import offsets_of

_AT_ONCE = 16  # how many regions are pooled at once without a kernel; each takes a copy of its image


@dataclass(frozen=True)
class Regions:
    """Boxes, the image of each, and how many are real."""

    boxes: Any
    images: Any
    real: Any
    rows: Any  # as the op received them

    @classmethod
    def of(cls, rows: Any, images: int, offsets: Any = None, coordinates: int = 4) -> Regions:
        """The regions in ``rows``.

        Args:
          images: how many images there are.
          offsets: where the regions of each image begin and the last ones end, if not the sequences of rows tell.
          coordinates: how many numbers a region has.
        """
        boxes = plain(rows)
        if boxes.ndim != 2 or boxes.shape[1] != coordinates:
            raise ValueError(f"ROIs must have shape [regions, {coordinates}], but has {list(boxes.shape)}")
        padded = isinstance(rows, Ragged)
        real = rows.rows if padded else boxes.shape[0]
        if offsets is not None:
            offsets = plain(offsets).reshape(-1)
            if offsets.shape[0] != images + 1:
                raise ValueError(f"the regions are those of {offsets.shape[0] - 1} images, but X has {images}")
            found = last_at_most(offsets, jnp.arange(boxes.shape[0]))
        elif not padded or not rows.levels:
            raise ValueError(
                "ROIs must hold a sequence for each image: feed a LoDTensor to a variable with lod_level=1"
            )
        else:
            if rows.sequences != images and len(rows.offsets) == 1:
                raise ValueError(f"ROIs holds {rows.sequences} sequences, but there are {images} images in X")
            found = rows.owners()
        return cls(boxes, jnp.clip(found, 0, images - 1).astype(jnp.int64), jnp.asarray(real, jnp.int64), rows)

    def packed(self, *sizes: int) -> Any:
        """The images as kernels take them: followed by the number of real regions, and by ``sizes``."""
        return jnp.concatenate([self.images, jnp.stack([self.real, *(jnp.int64(size) for size in sizes)])])

    def result(self, values: Any) -> Any:
        """A result with a row for each region, as many of them real."""
        return self.rows.as_rows(values) if isinstance(self.rows, Ragged) else values


def quotient(x: Any, divisor: int) -> Any:
    """x / divisor, correctly rounded: XLA multiplies by the reciprocal of a constant.

    The result of that may be on the other side of an integer, and differences of large numbers show it.
    """
    return (x.astype(jnp.float64) / divisor).astype(x.dtype)


def rounded(x: Any) -> Any:
    """The nearest integer; halves away from zero, as in C."""
    return jnp.sign(x) * round_half_up(jnp.abs(x))


def region_offsets(counts: Any) -> Any:
    """Offsets from the numbers of regions of each image; None if there are none."""
    return None if counts is None else offsets_of(plain(counts).reshape(-1))


def infer_bins(channels: str | None = None, x: str = "X", rois: str = "ROIs", **outputs: Any) -> Infer:
    """Inference for ops that pool regions.

    Args:
      channels: the attribute that tells how many channels the result has; by default as many as x.
      outputs: slot -> dtype, None for that of x; "Out" if there are none.
    """

    def infer(inputs: Described, attrs: dict[str, Any]) -> Described:
        image, regions = inputs[x][0], inputs[rois][0]
        if len(image.shape) != 4:
            raise ValueError(f"{x} must have 4 dims, NCHW, but has shape {list(image.shape)}")
        count = image.shape[1] if channels is None else attrs[channels]
        shape = (regions.shape[0], count, attrs.get("pooled_height", 1), attrs.get("pooled_width", 1))
        return {slot: [ShapeDtype(shape, dtype or image.dtype)] for slot, dtype in (outputs or {"Out": None}).items()}

    return infer


def pool_regions(x: Any, regions: Regions, down: Any, across: Any) -> Any:
    """Weighted sums over the pixels of each region's image, [regions, channels, rows of bins, columns of bins].

    Args:
      x: NCHW.
      down, across: weights of rows, [regions, rows of bins, height], and of columns, [regions, columns of bins, width].
    """
    _, channels, height, width = x.shape
    count, high, _ = down.shape
    x = x.transpose(0, 2, 3, 1)
    kernel = kernels.find("regions") if count and x.dtype == jnp.float32 else None
    if kernel is not None:
        weights = (down.reshape(-1, height), across.reshape(-1, width))
        out = kernel.pool(regions.packed(), x.reshape(-1, channels), *weights)
        out = out.reshape(count, high, across.shape[1], channels)
    else:
        out = _pool_by_products(x, regions.images, down, across)
    return out.transpose(0, 3, 1, 2)


def _pool_by_products(x: Any, images: Any, down: Any, across: Any) -> Any:
    def pool(region: Any) -> Any:
        image, down, across = region
        rows = jnp.tensordot(down, x[image], 1, precision=lax.Precision.HIGHEST)
        return jnp.einsum("qx,pxc->pqc", across, rows, precision=lax.Precision.HIGHEST)

    return lax.map(pool, (images, down, across), batch_size=_AT_ONCE)
