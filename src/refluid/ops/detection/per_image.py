"""Boxes of several images, in as much room for each as the image with most of them may need; choosing among them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from refluid.ops.core.values import Ragged, plain
from refluid.ops.detection.boxes import areas
from refluid.ops.sequence.packing import pick_pieces, require_single_level


def require_images(value: Any, images: int, slot: str) -> Ragged:
    """``value`` as a sequence for each image."""
    sequences = require_single_level(value, slot)
    if sequences.sequences != images and not sequences.hidden:
        raise ValueError(f"{slot} has {sequences.sequences} sequences, but there are {images} images")
    return sequences


def image_sizes(im_info: Any) -> Any:
    """ImInfo, checked: height, width and scale of each image."""
    info = plain(im_info)
    if info.ndim != 2 or info.shape[1] != 3:
        raise ValueError(f"ImInfo must have rows of height, width and scale, but has shape {list(info.shape)}")
    return info


def within(rows: Ragged) -> Any:
    """[images, longest]: which places of `Ragged.to_padded` are real."""
    return jnp.arange(rows.longest) < rows.lengths[:, None]


def packed(values: Any, counts: Any) -> Ragged:
    """The first ``counts[i]`` rows of each values[i], as sequences."""
    images, room = values.shape[:2]
    starts = jnp.arange(images, dtype=jnp.int32) * room
    rows, offsets = pick_pieces(values.reshape(images * room, *values.shape[2:]), starts, counts, images * room)
    return Ragged(rows, (offsets,), room)


def pixel_overlaps(boxes: Any, truth: Any, is_real: Any) -> Any:
    """[images, boxes, objects]: overlaps of boxes of pixels with the objects of their image; -1 where there is none.

    Args:
      boxes: [images or 1, boxes, 4].
      truth: [images, objects, 4].
      is_real: [images, objects].
    """
    low = jnp.maximum(boxes[:, :, None, :2], truth[:, None, :, :2])
    high = jnp.minimum(boxes[:, :, None, 2:], truth[:, None, :, 2:])
    side = jnp.maximum(high - low + 1, 0)
    common = side[..., 0] * side[..., 1]
    union = areas(boxes, False)[:, :, None] + areas(truth, False)[:, None] - common
    return jnp.where(is_real[:, None], jnp.where(common > 0, common / jnp.where(common > 0, union, 1), 0), -1)


def nearest(overlaps: Any) -> tuple[Any, Any]:
    """The largest overlap of each box, and the object it is with; there may be no objects."""
    if not overlaps.shape[2]:
        return jnp.full(overlaps.shape[:2], -1, overlaps.dtype), jnp.zeros(overlaps.shape[:2], jnp.int32)
    return overlaps.max(2), overlaps.argmax(2)


def choose(candidates: Any, wanted: Any, key: Any = None) -> Any:
    """The mask of as many candidates of each row as are wanted: the first ones, or with a key any of them."""
    wanted = jnp.broadcast_to(wanted, candidates.shape[:1])[:, None]
    if key is None:
        return candidates & (jnp.cumsum(candidates, 1) <= wanted)
    return largest(jax.random.uniform(key, candidates.shape), candidates, wanted[:, 0])


def largest(values: Any, candidates: Any, wanted: Any) -> Any:
    """The mask of as many candidates as are wanted in each row, those with the largest values; of equal ones the first.

    Sorting the values alone, without their places, takes a fraction of the time.
    """
    values = jnp.where(candidates, values, -jnp.inf)
    count = jnp.minimum(wanted, candidates.sum(1, dtype=wanted.dtype))[:, None]
    last = jnp.take_along_axis(jnp.sort(values, 1), values.shape[1] - jnp.maximum(count, 1), 1)
    above, equal = candidates & (values > last), candidates & (values == last)
    left = count - above.sum(1, keepdims=True, dtype=count.dtype)
    return (count > 0) & (above | (equal & (jnp.cumsum(equal, 1, dtype=count.dtype) <= left)))


def places_of(mask: Any, room: int) -> Any:
    """[images, room]: where the mask is true, in order; 0 after that."""
    order = jnp.cumsum(mask, 1) - 1
    image = jnp.arange(mask.shape[0])[:, None]
    places = jnp.broadcast_to(jnp.arange(mask.shape[1], dtype=jnp.int32), mask.shape)
    return jnp.zeros((mask.shape[0], room), jnp.int32).at[image, jnp.where(mask, order, room)].set(places, mode="drop")


def one_after_other(first: Any, counts: Any, second: Any) -> Any:
    """[images, room of both]: the first ``counts[i]`` of first[i], then second[i]."""
    place = jnp.arange(first.shape[1] + second.shape[1])[None]
    both = jnp.concatenate([first, second], 1)
    index = jnp.where(place < counts[:, None], place, place - counts[:, None] + first.shape[1])
    return jnp.take_along_axis(both, jnp.minimum(index, both.shape[1] - 1), 1)


def rows_at(values: Any, places: Any) -> Any:
    """values[i, places[i]], for values of any number of dims."""
    return jnp.take_along_axis(values, places.reshape(*places.shape, *(1,) * (values.ndim - 2)), 1)
