"""YOLOv3: the boxes that a feature map predicts, and its loss.

For each of a few anchors, a cell of the map predicts a center within (or, with ``scale_x_y``, around) the cell, a size
relative to the anchor, whether there is an object, and its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.ops.core.registry import op
from refluid.ops.core.values import as_ids
from refluid.ops.detection.boxes import Centered

_TINY = 1e-6  # boxes that are not wider and higher than this are no objects
_LEAST_SCORE = 1e-5  # objects with a lower score are none for the cell that is responsible
_SMOOTHEST = 1 / 40  # the largest share that label smoothing takes


def _cells_of(x: Any, anchors: int, class_num: int) -> Any:
    """What each cell predicts for each anchor: [samples, anchors, (x, y, width, height, object, classes), ...]."""
    if x.ndim != 4 or x.shape[1] != anchors * (5 + class_num):
        expected = f"{anchors} anchors x (5 + {class_num} classes) = {anchors * (5 + class_num)} channels"
        raise ValueError(f"X must be NCHW with {expected}, but has shape {list(x.shape)}")
    return x.reshape(x.shape[0], anchors, 5 + class_num, *x.shape[2:])


def _anchors_of(anchors: Sequence[int]) -> np.ndarray:
    if not anchors or len(anchors) % 2:
        raise ValueError(f"anchors must be pairs of width and height, but has {len(anchors)} numbers")
    return np.array(anchors, np.float32).reshape(-1, 2)


def _predicted(cells: Any, anchors: np.ndarray, downsample_ratio: int, scale_x_y: float) -> Centered:
    """The predicted boxes in units of the image, each side [samples, anchors, height, width]."""
    height, width = cells.shape[3:]
    x, y, wide, high = (cells[:, :, i] for i in range(4))
    bias = 0.5 * (scale_x_y - 1)
    column, row = jnp.arange(width, dtype=x.dtype), jnp.arange(height, dtype=x.dtype)[:, None]
    sides = _relative(anchors, downsample_ratio, cells)[:, :, None, None]
    return Centered(
        (column + jax.nn.sigmoid(x) * scale_x_y - bias) / width,
        (row + jax.nn.sigmoid(y) * scale_x_y - bias) / height,
        jnp.exp(wide) * sides[:, 0],
        jnp.exp(high) * sides[:, 1],
    )


def _relative(anchors: np.ndarray, downsample_ratio: int, x: Any) -> np.ndarray:
    """Anchors in units of the image that x is a feature map of."""
    height, width = x.shape[-2:]
    return (anchors / (downsample_ratio * np.array([width, height], np.float32))).astype(x.dtype)


@op("yolo_box", inputs="X ImgSize", outputs="Boxes Scores", grad=None, lod=None)
def yolo_box(x, image_size, *, anchors, class_num, conf_thresh, downsample_ratio=32, clip_bbox=True, scale_x_y=1.0):
    """The predicted boxes in pixels of images of given height and width, and the scores of their classes.

    Both are zero where the probability of an object is below ``conf_thresh``.
    """
    known = _anchors_of(anchors)
    cells = _cells_of(x, len(known), class_num)
    if image_size.shape != (x.shape[0], 2):
        raise ValueError(
            f"ImgSize must have shape [{x.shape[0]}, 2] for X {list(x.shape)}, but has {list(image_size.shape)}"
        )
    high, wide = (image_size[:, i].astype(x.dtype)[:, None, None, None] for i in (0, 1))
    boxes = _predicted(cells, known, downsample_ratio, scale_x_y)
    left, right = ((boxes.x + sign * boxes.width / 2) * wide for sign in (-1, 1))
    top, bottom = ((boxes.y + sign * boxes.height / 2) * high for sign in (-1, 1))
    if clip_bbox:
        # Fluid clips each side at one border only.
        left, top = jnp.maximum(left, 0), jnp.maximum(top, 0)
        right, bottom = jnp.minimum(right, wide - 1), jnp.minimum(bottom, high - 1)
    confidence = jax.nn.sigmoid(cells[:, :, 4])
    seen = confidence >= conf_thresh
    found = jnp.where(seen[..., None], jnp.stack([left, top, right, bottom], -1), 0)
    scores = jnp.where(seen[:, :, None], confidence[:, :, None] * jax.nn.sigmoid(cells[:, :, 5:]), 0)
    return found.reshape(x.shape[0], -1, 4), jnp.moveaxis(scores, 2, -1).reshape(x.shape[0], -1, class_num)


class _Truth(NamedTuple):
    """The objects of a batch, each [samples, objects], and the cell and anchor that has to predict them."""

    box: Centered
    label: Any
    score: Any
    is_object: Any
    anchor: Any  # which of the map's anchors; -1 if none is responsible
    row: Any
    column: Any

    @property
    def has_cell(self) -> Any:
        """Whether a cell of this map has to predict the object."""
        return self.anchor >= 0

    @property
    def is_last(self) -> Any:
        """Whether no later object is predicted by the same cell and anchor."""
        cell = jnp.stack([self.anchor, self.row, self.column], -1)
        same = jnp.all(cell[:, :, None] == cell[:, None, :], -1)
        later = jnp.triu(jnp.ones(same.shape[1:], bool), 1)
        return ~jnp.any(same & later, 2)


@op(
    "yolov3_loss",
    inputs="X GTBox GTLabel GTScore?",
    outputs="Loss ObjectnessMask GTMatchMask",
    differentiable="X",
    lod=None,
)
def yolov3_loss(
    x,
    gt_box,
    gt_label,
    gt_score=None,
    *,
    anchors,
    anchor_mask,
    class_num,
    ignore_thresh=0.7,
    downsample_ratio=32,
    use_label_smooth=True,
    scale_x_y=1.0,
):
    """The loss of each sample: of place, size and class of objects, and of whether a cell predicts one.

    Cells whose prediction overlaps with an object by more than ``ignore_thresh``, but are not responsible for it, are
    left out.
    """
    known = _anchors_of(anchors)
    if any(not 0 <= i < len(known) for i in anchor_mask):
        raise ValueError(f"anchor_mask {list(anchor_mask)} names anchors beyond the {len(known)} that there are")
    cells = _cells_of(x, len(anchor_mask), class_num)
    truth = _truth_of(x, gt_box, gt_label, gt_score, known, anchor_mask, downsample_ratio)
    mine = known[list(anchor_mask)]
    predicted = _predicted(lax.stop_gradient(cells), mine, downsample_ratio, scale_x_y)
    objectness = _objectness(_overlaps_any(predicted, truth, ignore_thresh), truth)
    loss = _losses_of_objects(cells, truth, mine, downsample_ratio, use_label_smooth)
    return loss + _loss_of_objectness(cells[:, :, 4], objectness), objectness, truth.anchor


def _truth_of(
    x: Any,
    gt_box: Any,
    gt_label: Any,
    gt_score: Any,
    anchors: np.ndarray,
    anchor_mask: Sequence[int],
    downsample_ratio: int,
) -> _Truth:
    shape = gt_box.shape[:2]
    if gt_box.ndim != 3 or gt_box.shape[2] != 4 or shape[0] != x.shape[0]:
        raise ValueError(f"GTBox must have shape [{x.shape[0]}, objects, 4], but has {list(gt_box.shape)}")
    for slot, value in (("GTLabel", gt_label), ("GTScore", gt_score)):
        if value is not None and value.shape != shape:
            raise ValueError(f"{slot} must have shape {list(shape)}, but has {list(value.shape)}")
    box = Centered(*(gt_box[..., i] for i in range(4)))
    is_object = (box.width > _TINY) & (box.height > _TINY)
    height, width = x.shape[2:]
    # The anchor of the most similar size is responsible, wherever it is: boxes are compared at the same center.
    sides = _relative(anchors, downsample_ratio, x)
    common = jnp.minimum(box.width[..., None], sides[:, 0]) * jnp.minimum(box.height[..., None], sides[:, 1])
    union = (box.width * box.height)[..., None] + sides[:, 0] * sides[:, 1] - common
    best = jnp.argmax(common / union, -1)
    place = np.full(len(anchors), -1, np.int32)
    for index, anchor in reversed(list(enumerate(anchor_mask))):
        place[anchor] = index
    return _Truth(
        box,
        as_ids(gt_label),
        jnp.ones(shape, x.dtype) if gt_score is None else gt_score.astype(x.dtype),
        is_object,
        jnp.where(is_object, jnp.asarray(place)[best], -1),
        jnp.clip((box.y * height).astype(jnp.int32), 0, height - 1),
        jnp.clip((box.x * width).astype(jnp.int32), 0, width - 1),
    )


def _overlaps_any(predicted: Centered, truth: _Truth, threshold: float) -> Any:
    """Whether the best overlap of each predicted box with an object is above the threshold."""
    mine = Centered(*(side[..., None] for side in predicted))
    theirs = Centered(*(side[:, None, None, None, :] for side in truth.box))
    common = _common_side(mine.x, mine.width, theirs.x, theirs.width)
    common = common * _common_side(mine.y, mine.height, theirs.y, theirs.height)
    union = mine.width * mine.height + theirs.width * theirs.height - common
    overlap = jnp.where(truth.is_object[:, None, None, None, :], common / union, 0)
    return jnp.max(overlap, -1, initial=0) > threshold


def _common_side(center: Any, side: Any, other_center: Any, other_side: Any) -> Any:
    lower = jnp.maximum(center - side / 2, other_center - other_side / 2)
    upper = jnp.minimum(center + side / 2, other_center + other_side / 2)
    return jnp.maximum(upper - lower, 0)


def _objectness(ignored: Any, truth: _Truth) -> Any:
    """For each cell and anchor the score of the object it is responsible for, 0 if there is none, -1 if it is ignored.

    If there are several objects, the last one counts.
    """
    samples, anchors = ignored.shape[:2]
    rows = jnp.arange(samples, dtype=jnp.int32)[:, None]
    anchor = jnp.where(truth.has_cell & truth.is_last, truth.anchor, anchors)  # beyond the anchors: dropped
    mask = jnp.where(ignored, -1, 0).astype(truth.score.dtype)
    return mask.at[rows, anchor, truth.row, truth.column].set(truth.score, mode="drop")


def _losses_of_objects(cells: Any, truth: _Truth, anchors: np.ndarray, downsample_ratio: int, smooth: bool) -> Any:
    """The losses of places, sizes and classes of a sample's objects, summed."""
    samples, _, channels, height, width = cells.shape
    rows = jnp.arange(samples, dtype=jnp.int32)[:, None]
    found = cells[rows, jnp.maximum(truth.anchor, 0), :, truth.row, truth.column]  # [samples, objects, channels]
    # All objects of a cell add to the loss, but Fluid's gradient is that of the last one: cells have room for one.
    found = jnp.where(truth.is_last[..., None], found, lax.stop_gradient(found))
    box = Centered(*(jnp.where(truth.has_cell, side, 1) for side in truth.box))
    size = downsample_ratio * jnp.asarray([width, height], cells.dtype)
    place = jnp.stack([box.x * width - truth.column, box.y * height - truth.row], -1)
    ratio = jnp.log(jnp.stack([box.width, box.height], -1) * size / jnp.asarray(anchors, cells.dtype)[truth.anchor])
    loss = _cross_entropy(found[..., :2], place).sum(-1) + jnp.abs(found[..., 2:4] - ratio).sum(-1)
    classes = channels - 5
    share = min(1 / classes, _SMOOTHEST) if smooth else 0.0
    wanted = jnp.where(truth.label[..., None] == jnp.arange(classes), 1 - share, share).astype(cells.dtype)
    loss = loss * (2 - box.width * box.height) + _cross_entropy(found[..., 5:], wanted).sum(-1)
    return jnp.where(truth.has_cell, loss * truth.score, 0).sum(1)


def _loss_of_objectness(logits: Any, objectness: Any) -> Any:
    """The loss of a sample's cells, weighted by the score of their object; 1 if they have none."""
    is_object = objectness > _LEAST_SCORE
    weight = jnp.where(is_object, objectness, (objectness > -0.5).astype(logits.dtype))
    return (weight * _cross_entropy(logits, is_object.astype(logits.dtype))).sum((1, 2, 3))


def _cross_entropy(logits: Any, label: Any) -> Any:
    return jax.nn.softplus(logits) - logits * label
