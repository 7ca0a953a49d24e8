"""What anchors have to predict, and which of them count: the targets of region proposals and of a RetinaNet."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from refluid.ops.core.infer import Described, Infer, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
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

_CLOSE = 1e-5  # an anchor is as near to an object as the nearest one if their overlaps differ by less


def _infer(*more: str) -> Infer:
    def infer(inputs: Described, attrs: dict[str, Any]) -> Described:
        integer, floating = np.dtype(np.int32), inputs["Anchor"][0].dtype
        shapes = {
            "LocationIndex": ((-1,), integer),
            "ScoreIndex": ((-1,), integer),
            "TargetBBox": ((-1, 4), floating),
            "TargetLabel": ((-1, 1), integer),
            "BBoxInsideWeight": ((-1, 4), floating),
            **dict.fromkeys(more, ((-1, 1), integer)),
        }
        return {slot: [ShapeDtype(*described, lod_level=1)] for slot, described in shapes.items()}

    return infer


_TARGETS: dict[str, Any] = {"grad": None, "lod": "aware", "finds_rows": True}


@op(
    "rpn_target_assign",
    inputs="Anchor GtBoxes IsCrowd ImInfo",
    outputs="LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight",
    random=True,
    infer=_infer(),
    **_TARGETS,
)
def rpn_target_assign(
    anchor,
    truth,
    crowd,
    im_info,
    *,
    rpn_batch_size_per_im=256,
    rpn_straddle_thresh=0.0,
    rpn_positive_overlap=0.7,
    rpn_negative_overlap=0.3,
    rpn_fg_fraction=0.25,
    use_random=True,
    key,
):
    """The anchors of each image that regress boxes, those that are classified, and the targets of both.

    An anchor is positive if it overlaps with an object by enough, or if none is nearer to that object; negative if it
    overlaps with no object by much. Of both there are a limited number.
    """
    anchors, info = plain(anchor), image_sizes(im_info)
    require_boxes(Anchor=anchors)
    inside = jnp.ones((info.shape[0], anchors.shape[0]), bool)
    if rpn_straddle_thresh >= 0:
        low, high = -rpn_straddle_thresh, info[:, 1::-1, None].swapaxes(1, 2) + rpn_straddle_thresh
        inside = jnp.all(anchors[:, :2] >= low, 1) & jnp.all(anchors[:, 2:] < high, 2)
    keys = jax.random.split(key) if use_random else (None, None)
    most = None
    if rpn_batch_size_per_im > 0 and rpn_fg_fraction > 0:
        most = int(rpn_batch_size_per_im * np.float32(rpn_fg_fraction)), rpn_batch_size_per_im
    overlaps = rpn_positive_overlap, rpn_negative_overlap
    found = _assign(anchors, inside, truth, crowd, info, *overlaps, most, keys)
    return found.places, found.scored, found.codes(anchors), found.labels(), found.weights()


@op(
    "retinanet_target_assign",
    inputs="Anchor GtBoxes GtLabels IsCrowd ImInfo",
    outputs="LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight ForegroundNumber",
    infer=_infer("ForegroundNumber"),
    **_TARGETS,
)
def retinanet_target_assign(anchor, truth, truth_label, crowd, im_info, *, positive_overlap=0.5, negative_overlap=0.4):
    """Targets like those of `rpn_target_assign`, of all anchors, with the classes of objects; the number of positives.

    Like real Fluid's, that number is one more than there are.
    """
    anchors, info = plain(anchor), image_sizes(im_info)
    require_boxes(Anchor=anchors)
    inside = jnp.ones((info.shape[0], anchors.shape[0]), bool)
    found = _assign(anchors, inside, truth, crowd, info, positive_overlap, negative_overlap)
    classes = require_images(truth_label, info.shape[0], "GtLabels").to_padded().reshape(info.shape[0], -1)
    number = (found.positives + 1).astype(jnp.int32)[:, None]
    images = Ragged(number, (jnp.arange(info.shape[0] + 1, dtype=jnp.int32),), 1)
    return found.places, found.scored, found.codes(anchors), found.labels(classes), found.weights(), images


def _assign(anchors, inside, truth, crowd, info, positive, negative, most=None, keys=(None, None)) -> _Targets:
    """Positive and negative anchors; ``most`` limits the number of positives, and of both together."""
    images = info.shape[0]
    truth, crowd = require_images(truth, images, "GtBoxes"), require_images(crowd, images, "IsCrowd")
    require_boxes(GtBoxes=truth)
    is_real = within(truth) & (crowd.to_padded().reshape(images, -1) == 0)
    boxes = truth.to_padded() * info[:, 2, None, None]
    overlaps = jnp.where(inside[..., None], pixel_overlaps(anchors[None], boxes, is_real), -1)
    overlap, object_ = nearest(overlaps)
    best = overlaps.max(1, keepdims=True, initial=-1)
    is_best = jnp.any((jnp.abs(overlaps - best) < _CLOSE) & is_real[:, None], 2)
    candidates = inside & (is_best | (overlap >= jnp.asarray(positive, overlap.dtype)))
    far = inside & (overlap < jnp.asarray(negative, overlap.dtype))
    if most is not None:
        candidates = choose(candidates, most[0], keys[0])
        far = choose(far, most[1] - candidates.sum(1), keys[1])
    room = tuple(min(limit, anchors.shape[0]) for limit in most or anchors.shape[:1] * 2)
    return _Targets(boxes, object_, candidates, far, room)


class _Targets:
    """Positive and negative anchors of each image.

    Anchors that were chosen as both are negatives. Real Fluid keeps the number of positives nevertheless: the first
    one takes their places among those that regress, with a weight of 0.
    """

    def __init__(self, boxes, objects, chosen, far, room):
        images, anchors = chosen.shape
        self._boxes, self._objects, self.positives = boxes, objects, chosen.sum(1)
        both = (chosen & far).sum(1)
        right = places_of(chosen & ~far, room[0])
        first = jnp.broadcast_to(jnp.argmax(chosen, 1)[:, None], right.shape).astype(jnp.int32)
        self._regressed = one_after_other(first, both, right)[:, : room[0]]
        self._counts = jnp.arange(room[0]) >= both[:, None]
        wrong, self._right = places_of(far, room[1]), self.positives - both
        self._scored = one_after_other(right, self._right, wrong)[:, : room[1]]
        self._all = self._right + far.sum(1)
        image = jnp.arange(images, dtype=jnp.int32)[:, None] * anchors
        self.places = packed(image + self._regressed, self.positives)
        self.scored = packed(image + self._scored, self._all)

    def labels(self, classes: Any = None) -> Ragged:
        """The class of each anchor that is classified, 1 if classes are not known; 0 for the background."""
        is_right = jnp.arange(self._scored.shape[1]) < self._right[:, None]
        labels = 1 if classes is None else rows_at(classes, rows_at(self._objects, self._scored))
        return packed(jnp.where(is_right, labels, 0).astype(jnp.int32)[..., None], self._all)

    def codes(self, anchors: Any) -> Ragged:
        """What the anchors that regress have to predict."""
        objects = rows_at(self._boxes, rows_at(self._objects, self._regressed))
        codes = encode(centered(objects, False), centered(anchors[self._regressed], False))
        return packed(codes, self.positives)

    def weights(self) -> Ragged:
        """1 for anchors that regress, 0 for those that only take a place."""
        weights = jnp.broadcast_to(self._counts[..., None], (*self._counts.shape, 4))
        return packed(weights.astype(self._boxes.dtype), self.positives)
