"""generate_mask_labels: the masks that regions of a Mask R-CNN have to predict. Polygons are drawn on the host."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.detection.per_image import image_sizes
from refluid.ops.sequence.nested import without_padding
from refluid.ops.sequence.packing import require_sequences, require_single_level


class Outline(NamedTuple):
    """The polygons of an object: their corners, and where those of each end."""

    corners: np.ndarray
    ends: np.ndarray

    @property
    def box(self) -> np.ndarray:
        """The smallest box around all polygons."""
        return np.concatenate([self.corners.min(0), self.corners.max(0)])


def _infer(inputs: Described, attrs: dict[str, Any]) -> Described:
    integer, width = np.dtype(np.int32), attrs["num_classes"] * attrs["resolution"] ** 2
    shapes = {
        "MaskRois": ((-1, 4), inputs["Rois"][0].dtype),
        "RoiHasMaskInt32": ((-1, 1), integer),
        "MaskInt32": ((-1, width), integer),
    }
    return {slot: [ShapeDtype(*described, lod_level=1)] for slot, described in shapes.items()}


@op(
    "generate_mask_labels",
    inputs="ImInfo GtClasses IsCrowd GtSegms Rois LabelsInt32",
    outputs="MaskRois RoiHasMaskInt32 MaskInt32",
    grad=None,
    host=True,
    lod="aware",
    infer=_infer,
    finds_rows=True,
)
def generate_mask_labels(im_info, classes, crowd, polygons, rois, labels, *, num_classes, resolution):
    """The regions of each image that have a class, which of its regions they are, and the masks of their objects.

    A mask is in the place of its class; other classes are -1. An image without such regions has its first region of
    the background, without a mask.
    """
    info = np.asarray(image_sizes(im_info))
    outlines = _outlines(polygons)
    slots = (("GtClasses", classes), ("IsCrowd", crowd), ("Rois", rois), ("LabelsInt32", labels))
    images = [_by_image(value, slot, len(info)) for slot, value in slots]
    if len(outlines) != len(info):
        raise ValueError(f"GtSegms has polygons of {len(outlines)} images, but there are {len(info)}")
    found = []
    for scale, shapes, own, is_crowd, boxes, label in zip(info[:, 2], outlines, *images, strict=True):
        if len(shapes) != len(own):
            raise ValueError(f"an image has {len(own)} objects in GtClasses, but polygons of {len(shapes)} in GtSegms")
        usable = [s for s, kind, many in zip(shapes, own.flat, is_crowd.flat, strict=True) if kind > 0 and not many]
        found.append(_masks(boxes, label.reshape(-1), scale, usable, num_classes, resolution))
    lengths = [len(places) for _, places, _ in found]
    offsets = (np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),)
    return tuple(Ragged(np.concatenate(rows), offsets, max(lengths)) for rows in zip(*found, strict=True))


def _by_image(value: Any, slot: str, images: int) -> list[np.ndarray]:
    value = without_padding(require_single_level(value, slot))
    parts = np.split(np.asarray(value.data), np.asarray(value.offsets[-1])[1:-1])
    if len(parts) != images:
        raise ValueError(f"{slot} has {len(parts)} sequences, but there are {images} images")
    return parts


def _outlines(polygons: Any) -> list[list[Outline]]:
    """The outlines of the objects of each image."""
    value = without_padding(require_sequences(polygons, "GtSegms"))
    if value.levels != 3 or plain(value).ndim != 2 or value.shape[1] != 2:
        raise ValueError(
            f"GtSegms must hold sequences of images, objects and polygons, 3 levels, with rows of x and y; it has "
            f"{value.levels} levels and shape {list(value.shape)}"
        )
    corners = np.asarray(value.data, np.float32)
    images, objects, ends = (np.asarray(level, np.int64) for level in value.offsets)
    outlines = [
        Outline(corners[ends[begin] : ends[end]].copy(), ends[begin + 1 : end + 1] - ends[begin])
        for begin, end in pairwise(objects)
    ]
    return [outlines[begin:end] for begin, end in pairwise(images)]


def _masks(
    boxes: np.ndarray, labels: np.ndarray, scale: Any, outlines: Sequence[Outline], num_classes: int, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Regions, their numbers and their masks in one image."""
    places = np.flatnonzero(labels > 0) if outlines else np.zeros(0, np.int64)
    if not len(places):
        places = np.flatnonzero(labels == 0)[:1]
        masks = np.full((len(places), num_classes * size * size), -1, np.int32)
        return boxes[places], places.astype(np.int32)[:, None], masks
    draw = import_module("refluid.kernels.host.masks").draw
    masks = np.full((len(places), num_classes, size * size), -1, np.int32)
    own = (boxes[places] / scale).astype(np.float32)
    nearest = _overlaps(own, np.stack([outline.box for outline in outlines])).argmax(1)
    for mask, box, object_, label in zip(masks, own, nearest, labels[places], strict=True):
        outline = outlines[object_]
        mask[label] = draw(outline.corners, outline.ends, np.ascontiguousarray(box), size)
    return boxes[places], places.astype(np.int32)[:, None], masks.reshape(len(places), -1)


def _overlaps(boxes: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The overlaps of boxes of pixels, [boxes, objects]."""
    low, high = np.maximum(boxes[:, None, :2], truth[:, :2]), np.minimum(boxes[:, None, 2:], truth[:, 2:])
    common = np.prod(np.maximum(high - low + 1, 0), 2)
    area = [np.prod(each[:, 2:] - each[:, :2] + 1, 1) for each in (boxes, truth)]
    return common / (area[0][:, None] + area[1] - common)
