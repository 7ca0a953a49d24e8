"""generate_proposal_labels: which proposals the second stage of a detector learns from, and what it has to predict."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.detection.boxes import centered, encode, require_boxes
from refluid.ops.detection.per_image import (
    choose,
    image_sizes,
    nearest,
    one_after_other,
    packed,
    pixel_overlaps,
    places_of,
    require_images,
    rows_at,
    within,
)


def _infer(inputs: Described, attrs: dict[str, Any]) -> Described:
    dtype, width = inputs["RpnRois"][0].dtype, 4 * attrs["class_nums"]
    shapes = {
        "Rois": ((-1, 4), dtype),
        "LabelsInt32": ((-1, 1), np.dtype(np.int32)),
        **dict.fromkeys(("BboxTargets", "BboxInsideWeights", "BboxOutsideWeights"), ((-1, width), dtype)),
    }
    return {slot: [ShapeDtype(*described, lod_level=1)] for slot, described in shapes.items()}


@op(
    "generate_proposal_labels",
    inputs="RpnRois GtClasses IsCrowd GtBoxes ImInfo",
    outputs="Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights",
    grad=None,
    lod="aware",
    random=True,
    infer=_infer,
    finds_rows=True,
)
def generate_proposal_labels(
    rois,
    classes,
    crowd,
    truth,
    im_info,
    *,
    batch_size_per_im,
    fg_fraction,
    fg_thresh,
    bg_thresh_hi,
    bg_thresh_lo,
    bbox_reg_weights,
    class_nums=81,
    use_random=True,
    is_cls_agnostic=False,
    is_cascade_rcnn=False,
    key,
):
    """A sample of proposals and objects of each image, with their classes and what their boxes have to become.

    The targets of a box are in the columns of its class; weights are 1 there.
    """
    info = image_sizes(im_info)
    images = info.shape[0]
    rois, truth = require_images(rois, images, "RpnRois"), require_images(truth, images, "GtBoxes")
    require_boxes(RpnRois=rois, GtBoxes=truth)
    classes, crowd = (
        require_images(each, images, slot).to_padded().reshape(images, -1)
        for each, slot in ((classes, "GtClasses"), (crowd, "IsCrowd"))
    )
    scale, objects, is_object = info[:, 2, None, None], truth.to_padded(), within(truth)
    boxes, is_real = rois.to_padded(), within(rois)
    if is_cascade_rcnn:
        boxes, is_real = _of_stage_before(boxes, is_real, truth.lengths, scale)
        is_crowd = jnp.pad(crowd, ((0, 0), (0, max(boxes.shape[1] - crowd.shape[1], 0))))[:, : boxes.shape[1]] > 0
    else:
        boxes, is_real = jnp.concatenate([objects, boxes / scale], 1), jnp.concatenate([is_object, is_real], 1)
        is_crowd = jnp.pad(crowd, ((0, 0), (0, rois.longest))) > 0
    overlap, object_ = nearest(pixel_overlaps(boxes, objects, is_object))
    overlap = jnp.where(is_crowd, -1, jnp.maximum(overlap, jnp.where(is_object.any(1), -1, 0)[:, None]))
    low, high, enough = (jnp.asarray(x, overlap.dtype) for x in (bg_thresh_lo, bg_thresh_hi, fg_thresh))
    right = is_real & (overlap >= enough)
    wrong = is_real & ~right & (overlap >= low) & (overlap < high)
    room = boxes.shape[1]
    if not is_cascade_rcnn:
        keys = jax.random.split(key) if use_random else (None, None)
        room = min(batch_size_per_im, room)
        right = choose(right, int(batch_size_per_im * np.float32(fg_fraction)), keys[0])
        wrong = choose(wrong, batch_size_per_im - right.sum(1), keys[1])
    found = right.sum(1)
    places = one_after_other(places_of(right, room), found, places_of(wrong, room))[:, :room]
    count, is_right = found + wrong.sum(1), jnp.arange(room) < found[:, None]
    boxes, object_ = rows_at(boxes, places), rows_at(object_, places)
    label = jnp.where(is_right, rows_at(classes, object_), 0).astype(jnp.int32)
    codes = encode(centered(rows_at(objects, object_), False), centered(boxes, False))
    codes = codes / jnp.asarray(bbox_reg_weights, codes.dtype)
    column = jnp.minimum(label, 1) if is_cls_agnostic else label
    weights = (column[..., None] == jnp.arange(class_nums)) & is_right[..., None]
    targets = jnp.where(weights[..., None], codes[:, :, None], 0).reshape(images, room, -1)
    weights = jnp.repeat(weights, 4, 2).astype(codes.dtype)
    kept = packed(boxes * scale, count)
    label, targets, weights = (kept.with_data(packed(x, count).data) for x in (label[..., None], targets, weights))
    return kept, label, targets, weights, weights


def _of_stage_before(boxes: Any, is_real: Any, objects: Any, scale: Any) -> tuple[Any, Any]:
    """The boxes that an earlier stage of a cascade made, those without area left out.

    The first ones are the objects, which that stage has added: real Fluid takes them for boxes in the original image.
    """
    is_real &= jnp.all(boxes[..., 2:] - boxes[..., :2] + 1 > 0, -1)
    place = jnp.arange(boxes.shape[1])
    boxes = jnp.where((place < objects[:, None])[..., None], boxes, boxes / scale)
    return rows_at(boxes, places_of(is_real, boxes.shape[1])), place < is_real.sum(1, keepdims=True)
