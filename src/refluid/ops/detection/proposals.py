"""Region proposals: the best boxes that a region proposal network predicts, and their levels of a feature pyramid."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.detection.boxes import areas, centered, clip, corners, decode, require_boxes
from refluid.ops.detection.per_image import image_sizes, packed
from refluid.ops.sequence.packing import joined_rows, offsets_of, require_single_level, take_rows

_LARGEST_RATIO = math.log(1000 / 16)  # the logarithm of how much larger than its anchor a proposal may be


def _infer_proposals(inputs: Described, attrs: dict[str, Any]) -> Described:
    dtype = inputs["Scores"][0].dtype
    shapes = {"RpnRois": (-1, 4), "RpnRoiProbs": (-1, 1)}
    return {slot: [ShapeDtype(shape, dtype, lod_level=1)] for slot, shape in shapes.items()}


@op(
    "generate_proposals",
    inputs="Scores BboxDeltas ImInfo Anchors Variances",
    outputs="RpnRois RpnRoiProbs RpnRoisLod?",
    grad=None,
    lod="aware",
    infer=_infer_proposals,
    finds_rows=True,
)
def generate_proposals(
    scores, codes, im_info, anchors, variances, *, pre_nms_topN, post_nms_topN, nms_thresh, min_size, eta=1.0
):
    """The best boxes of each image that do not overlap by much, their scores, and how many there are up to each image.

    Boxes are decoded from anchors and cut off at the border of the image; those that are too small are dropped.
    """
    scores, info = plain(scores), image_sizes(im_info)
    anchors, variances = plain(anchors).reshape(-1, 4), plain(variances).reshape(-1, 4)
    images, kinds = scores.shape[:2]
    points = scores.transpose(0, 2, 3, 1).reshape(images, -1)
    codes = plain(codes).reshape(images, kinds, 4, *scores.shape[2:]).transpose(0, 3, 4, 1, 2).reshape(images, -1, 4)
    if points.shape[1] != anchors.shape[0] or anchors.shape != variances.shape:
        raise ValueError(
            f"there are {points.shape[1]} scores in an image, but {anchors.shape[0]} anchors and {variances.shape[0]} "
            "variances"
        )
    count = points.shape[1] if pre_nms_topN <= 0 else min(pre_nms_topN, points.shape[1])
    points, places = lax.top_k(points[:, ::-1], count)
    places = anchors.shape[0] - 1 - places  # of equal scores, the last comes first
    own = jnp.take_along_axis(codes, places[..., None], 1) * variances[places]
    decoded = decode(own, centered(anchors[places], False), _LARGEST_RATIO)
    boxes = clip(corners(decoded, False), info[:, :1], info[:, 1:2])
    large = _is_large(boxes, info, max(min_size, 1.0))
    most = min(post_nms_topN, count) if post_nms_topN > 0 and nms_thresh > 0 else count
    threshold = nms_thresh if nms_thresh > 0 else np.inf
    kept, found = jax.vmap(lambda box, ok: _suppress(box, ok, threshold, eta, most))(boxes, large)
    rois = packed(jnp.take_along_axis(boxes, kept[..., None], 1), found)
    probabilities = rois.with_data(packed(jnp.take_along_axis(points, kept, 1)[..., None], found).data)
    return rois, probabilities, jnp.cumsum(found, dtype=jnp.int64)


def _is_large(boxes: Any, info: Any, size: float) -> Any:
    """Whether boxes are of that size in the original image, and their centers in the image."""
    reach = boxes[..., 2:] - boxes[..., :2]
    original = reach / info[:, 2, None, None] + 1
    center = boxes[..., :2] + (reach + 1) / 2
    return jnp.all(original >= jnp.asarray(size, boxes.dtype), -1) & jnp.all(center <= info[:, None, 1::-1], -1)


def _suppress(boxes: Any, candidates: Any, threshold: float, eta: float, most: int) -> tuple[Any, Any]:
    """The first boxes that overlap with none before them by more than the threshold, and their number.

    Args:
      boxes: [boxes, 4], best first.
      candidates: which of them are looked at.
      eta: if less than 1, every box that is found multiplies the threshold by it, as long as that is above 0.5.
    """
    count, area = boxes.shape[0], areas(boxes, False)
    places = jnp.arange(count, dtype=jnp.int32)

    def overlaps(one: Any) -> Any:
        box = boxes[one]
        side = jnp.minimum(boxes[:, 2:], box[2:]) - jnp.maximum(boxes[:, :2], box[:2]) + 1
        common = side[:, 0] * side[:, 1]
        apart = jnp.any((boxes[:, :2] > box[2:]) | (boxes[:, 2:] < box[:2]), 1)
        return jnp.where(apart, 0, common / (area + area[one] - common))

    def goes_on(state: Any) -> Any:
        _, found, next_, *_ = state
        return (found < most) & (next_ < count)

    def step(state: Any) -> Any:
        kept, found, next_, overlap, limit = state
        kept = kept.at[found].set(next_)
        overlap = jnp.maximum(overlap, overlaps(next_))
        if eta < 1:
            limit = jnp.where(limit > 0.5, limit * jnp.asarray(eta, limit.dtype), limit)
        return kept, found + 1, _first(candidates & (places > next_) & (overlap <= limit), count), overlap, limit

    limit = jnp.asarray(threshold, boxes.dtype)
    start = jnp.zeros(most, jnp.int32), jnp.int32(0), _first(candidates, count), jnp.zeros_like(area), limit
    kept, found, *_ = lax.while_loop(goes_on, step, start)
    return kept, found


def _first(mask: Any, otherwise: int) -> Any:
    return jnp.where(mask.any(), jnp.argmax(mask), otherwise).astype(jnp.int32)


def _infer_levels(inputs: Described, attrs: dict[str, Any]) -> Described:
    rois = ShapeDtype((-1, 4), inputs["FpnRois"][0].dtype, lod_level=1)
    restore = ShapeDtype((-1, 1), np.dtype(np.int32))
    return {"MultiFpnRois": [rois] * _level_count(**attrs), "RestoreIndex": [restore]}


def _level_count(min_level: int, max_level: int, **_: Any) -> int:
    if not 1 <= min_level <= max_level:
        raise ValueError(f"levels must be from 1 on, in order, but go from {min_level} to {max_level}")
    return max_level - min_level + 1


@op(
    "distribute_fpn_proposals",
    inputs="FpnRois",
    outputs="MultiFpnRois* RestoreIndex",
    grad=None,
    lod="aware",
    infer=_infer_levels,
    finds_rows=True,
)
def distribute_fpn_proposals(rois, *, min_level, max_level, refer_level, refer_scale):
    """The regions of each level of a pyramid, larger ones of higher levels, and where each region went.

    A region of refer_scale by refer_scale pixels is of level refer_level.
    """
    rois, count = require_single_level(rois, "FpnRois"), _level_count(min_level, max_level)
    require_boxes(FpnRois=rois)
    scale = jnp.sqrt(areas(rois.data, False)) / refer_scale
    level = jnp.clip(jnp.floor(jnp.log2(scale + 1e-6) + refer_level), min_level, max_level)
    level = jnp.where(rois.real(), level - min_level, count).astype(jnp.int32)
    owners, first, parts = rois.owners(), 0, []
    restore = jnp.zeros(rois.shape[0], jnp.int32)
    for number in range(count):
        is_here = level == number
        order = jnp.cumsum(is_here, dtype=jnp.int32)
        (places,) = jnp.nonzero(is_here, size=rois.shape[0], fill_value=0)
        lengths = jnp.zeros(rois.sequences, jnp.int32).at[owners].add(is_here, mode="drop")
        real = jnp.arange(rois.shape[0]) < is_here.sum()
        parts.append(
            Ragged(take_rows(rois.data, places, real), (*rois.offsets[:-1], offsets_of(lengths)), rois.longest)
        )
        restore = jnp.where(is_here, (first + order - 1).astype(jnp.int32), restore)
        first = first + is_here.sum(dtype=jnp.int32)
    return parts, rois.as_rows(restore[:, None])


def _infer_collected(inputs: Described, attrs: dict[str, Any]) -> Described:
    return {"FpnRois": [ShapeDtype((attrs["post_nms_topN"], 4), inputs["MultiLevelRois"][0].dtype, lod_level=1)]}


@op(
    "collect_fpn_proposals",
    inputs="MultiLevelRois* MultiLevelScores*",
    outputs="FpnRois",
    grad=None,
    lod="aware",
    infer=_infer_collected,
    finds_rows=True,
)
def collect_fpn_proposals(rois, scores, *, post_nms_topN):
    """The regions of all levels and images with the highest scores, image by image; of equal scores the last."""
    if len(rois) != len(scores):
        raise ValueError(f"there are regions of {len(rois)} levels, but scores of {len(scores)}")
    rois = [require_single_level(each, "MultiLevelRois") for each in rois]
    images = {each.sequences for each in rois}
    if len(images) > 1:
        raise ValueError(f"MultiLevelRois must be of as many images on each level, but are of {sorted(images)}")
    (images,) = images
    owners = joined_rows([each.as_rows(each.owners()) for each in rois])
    boxes, points = (joined_rows([_rows(each) for each in level]) for level in (rois, scores))
    real, count = boxes.real(), min(post_nms_topN, boxes.shape[0])
    order = jnp.arange(boxes.shape[0], dtype=jnp.int32)
    key = jnp.where(real, -points.data.reshape(-1), jnp.inf)
    *_, chosen = lax.sort([~real, key, -order], num_keys=3)
    chosen = -chosen[:count]
    image = jnp.where(real[chosen], owners.data[chosen], images)
    chosen = chosen[jnp.argsort(image, stable=True)]
    lengths = jnp.zeros(images, jnp.int32).at[image].add(1, mode="drop")
    offsets = offsets_of(lengths)  # differs: collected-images
    return Ragged(take_rows(boxes.data, chosen, jnp.arange(count) < offsets[-1]), (offsets,), count)


def _rows(value: Any) -> Any:
    """Rows that may be padding, without sequences."""
    return value.as_rows(value.data) if isinstance(value, Ragged) else value
