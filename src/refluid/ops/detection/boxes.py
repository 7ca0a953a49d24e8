"""Arithmetic on boxes: areas, overlaps, the offsets that regressions predict, clipping; and the ops that are just that.

A box is (left, top, right, bottom). Normalized boxes are in units of the image. Boxes that are not normalized are in
pixels, and their last pixel belongs to them: they are one pixel wider than right - left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from refluid.ops.core.infer import described_like
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import sequences_only_in
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.packing import require_single_level

_SMALL = 1e-10  # added to unions, so that boxes without area do not overlap


class Centered(NamedTuple):
    """Boxes by their centers and sizes; each field is an array with one element per box."""

    x: Any
    y: Any
    width: Any
    height: Any


def extra_pixel(normalized: bool) -> int:
    """How much larger a box is than the difference of its coordinates."""
    return 0 if normalized else 1


def areas(boxes: Any, normalized: bool = True) -> Any:
    """The areas of boxes [..., 4]."""
    extra = extra_pixel(normalized)
    return (boxes[..., 2] - boxes[..., 0] + extra) * (boxes[..., 3] - boxes[..., 1] + extra)


def pairwise_iou(x: Any, y: Any, normalized: bool = True) -> Any:
    """The intersection of every box of x with every box of y, over their union: [rows of x, rows of y]."""
    width, height = (_common_side(x[:, i::2], y[:, i::2], extra_pixel(normalized)) for i in (0, 1))
    common = width * height
    union = areas(x, normalized)[:, None] + areas(y, normalized) - common
    return common / (union + jnp.asarray(_SMALL, union.dtype))


def _common_side(x: Any, y: Any, extra: int) -> Any:
    """The length of what every interval of x has in common with every interval of y."""
    lower, upper = jnp.maximum(x[:, :1], y[:, 0]), jnp.minimum(x[:, 1:], y[:, 1])
    return jnp.maximum(upper - lower + extra, 0)


def centered(boxes: Any, normalized: bool = True) -> Centered:
    """Boxes [..., 4] by their centers and sizes."""
    extra = extra_pixel(normalized)
    width, height = boxes[..., 2] - boxes[..., 0] + extra, boxes[..., 3] - boxes[..., 1] + extra
    return Centered(boxes[..., 0] + width / 2, boxes[..., 1] + height / 2, width, height)


def corners(boxes: Centered, normalized: bool = True) -> Any:
    """The inverse of `centered`."""
    extra = extra_pixel(normalized)
    left, top = boxes.x - boxes.width / 2, boxes.y - boxes.height / 2
    return jnp.stack([left, top, boxes.x + boxes.width / 2 - extra, boxes.y + boxes.height / 2 - extra], -1)


def encode(boxes: Centered, priors: Centered) -> Any:
    """What a regression has to predict to get from priors to boxes: shifts over sizes, and logarithms of ratios."""
    return jnp.stack(
        [
            (boxes.x - priors.x) / priors.width,
            (boxes.y - priors.y) / priors.height,
            jnp.log(jnp.abs(boxes.width / priors.width)),
            jnp.log(jnp.abs(boxes.height / priors.height)),
        ],
        -1,
    )


def decode(codes: Any, priors: Centered, bound: float | None = None) -> Centered:
    """The inverse of `encode`; ``bound`` limits the logarithms of ratios."""
    ratios = codes[..., 2:] if bound is None else jnp.minimum(codes[..., 2:], jnp.asarray(bound, codes.dtype))
    return Centered(
        priors.x + codes[..., 0] * priors.width,
        priors.y + codes[..., 1] * priors.height,
        jnp.exp(ratios[..., 0]) * priors.width,
        jnp.exp(ratios[..., 1]) * priors.height,
    )


def clip(boxes: Any, height: Any, width: Any) -> Any:
    """Boxes [..., 4] of pixels with what is outside of images of that size cut off."""
    last = jnp.stack([width, height, width, height], -1) - 1
    return jnp.clip(boxes, jnp.zeros((), boxes.dtype), last.astype(boxes.dtype))


def original_sizes(im_info: Any) -> tuple[Any, Any]:
    """The heights and widths of images before they were scaled, from rows of (height, width, scale)."""
    height, width = (round_half_up(im_info[:, i] / im_info[:, 2]) for i in (0, 1))
    return height, width


def round_half_up(x: Any) -> Any:
    """The nearest integer, as C's round finds it for numbers that are not negative."""
    whole = jnp.floor(x)
    return whole + (x - whole >= 0.5).astype(x.dtype)


def require_boxes(**slots: Any) -> None:
    """Raises unless the last dim of every array is 4; slots that are not connected are None."""
    for slot, value in slots.items():
        if value is not None and (value.ndim < 2 or value.shape[-1] != 4):
            raise ValueError(f"{slot} must hold boxes of 4 coordinates, but has shape {list(value.shape)}")


@op("iou_similarity", inputs="X Y", outputs="Out", grad=None, row_wise=sequences_only_in("X"))
def iou_similarity(x, y, *, box_normalized=True):
    """The intersection over the union of every box of x and every box of y."""
    require_boxes(X=x, Y=y)
    return pairwise_iou(x, y, box_normalized)


def _codes_by_row(attrs: dict[str, Any], arguments: dict[str, list[Any]]) -> bool:
    """Rows of targets stay apart; those of priors only where each row of targets has a prior of its own."""
    return _has_prior_per_row(**attrs) or sequences_only_in("TargetBox")(attrs, arguments)


def _has_prior_per_row(code_type: str = "encode_center_size", axis: int = 0, **_: Any) -> bool:
    return code_type == "decode_center_size" and axis == 1


@op(
    "box_coder",
    inputs="PriorBox PriorBoxVar? TargetBox",
    outputs="OutputBox",
    grad=None,
    lod="aware",
    row_wise=_codes_by_row,
)
def box_coder(
    prior, prior_variance, target, *, code_type="encode_center_size", box_normalized=True, axis=0, variance=()
):
    """Every target relative to every prior; or, decoding, the boxes whose offsets from the priors are given."""
    priors, scale, targets = plain(prior), plain(prior_variance), plain(target)
    require_boxes(PriorBox=priors, PriorBoxVar=scale, TargetBox=targets)
    if scale is not None and scale.shape != priors.shape:
        raise ValueError(f"PriorBoxVar {list(scale.shape)} and PriorBox {list(priors.shape)} differ in shape")
    if variance and len(variance) != 4:
        raise ValueError(f"variance must have 4 numbers, but has {len(variance)}")
    if scale is None:
        scale = jnp.broadcast_to(jnp.asarray(variance or 1.0, targets.dtype), priors.shape)
    if code_type == "encode_center_size":
        codes = _encoded(targets, centered(priors, box_normalized), scale, box_normalized)
        return _cut_like(target, prior, codes)
    if code_type != "decode_center_size":
        raise ValueError(f"code_type must be encode_center_size or decode_center_size, not {code_type}")
    _require_prior_for_each(targets, priors, axis)
    if axis == 1:
        priors, scale = priors[:, None], scale[:, None]
    boxes = corners(decode(targets * scale, centered(priors, box_normalized)), box_normalized)
    return _cut_like(target, prior, boxes) if axis == 0 else _cut_like(prior, target, boxes)


def _encoded(targets: Any, priors: Centered, scale: Any, normalized: bool) -> Any:
    if targets.ndim != 2:
        raise ValueError(f"TargetBox must have 2 dims to be encoded, but has shape {list(targets.shape)}")
    boxes = centered(targets[:, None], normalized)
    # Fluid's centers of targets leave out the extra pixel, unlike those of priors.
    middle = (targets[:, None, :2] + targets[:, None, 2:]) / 2
    return encode(boxes._replace(x=middle[..., 0], y=middle[..., 1]), priors) / scale


def _cut_like(model: Any, other: Any, rows: Any) -> Any:
    """Rows as sequences if ``model`` is; they may be padded because ``other`` is."""
    if isinstance(model, Ragged):
        return model.with_data(rows)
    return other.as_rows(rows) if isinstance(other, Ragged) and other.shape[0] == rows.shape[0] else rows


def _require_prior_for_each(target: Any, prior: Any, axis: int) -> None:
    if axis not in (0, 1):
        raise ValueError(f"axis must be 0 or 1, not {axis}")
    if target.ndim != 3 or target.shape[1 - axis] != prior.shape[0]:
        expected: Sequence[Any] = ["N", prior.shape[0], 4] if axis == 0 else [prior.shape[0], "N", 4]
        wanted = ", ".join(map(str, expected))
        raise ValueError(
            f"TargetBox must have shape [{wanted}] to be decoded with axis={axis} and PriorBox {list(prior.shape)}, "
            f"but has {list(target.shape)}"
        )


@op(
    "box_clip",
    inputs="Input ImInfo",
    outputs="Output",
    grad=None,
    lod="aware",
    infer=described_like("Input", out="Output"),
)
def box_clip(boxes, im_info):
    """The boxes of each image, a sequence, cut off at its borders; ImInfo holds height, width and scale of each."""
    boxes, im_info = require_single_level(boxes, "Input"), plain(im_info)
    require_boxes(Input=boxes)
    if im_info.ndim != 2 or im_info.shape[1] != 3:
        raise ValueError(f"ImInfo must have rows of height, width and scale, but has shape {list(im_info.shape)}")
    height, width = (size[image_of_rows(boxes, im_info.shape[0], "Input")] for size in original_sizes(im_info))
    across = (-1, *(1,) * (boxes.ndim - 2))
    return boxes.with_data(clip(boxes.data, height.reshape(across), width.reshape(across)))


def image_of_rows(rows: Ragged, images: int, slot: str) -> Any:
    """The image that each row belongs to, where the sequences of ``rows`` are images; padding rows get the last one."""
    if rows.sequences != images and not rows.hidden:
        raise ValueError(f"{slot} has {rows.sequences} sequences, but there are {images} images")
    return jnp.minimum(rows.owners(), images - 1)
