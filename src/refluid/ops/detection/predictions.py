"""Ops that turn what a network predicts into boxes."""

from __future__ import annotations

import jax.numpy as jnp

from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.detection.boxes import centered, corners, decode, require_boxes


@op("polygon_box_transform", inputs="Input", outputs="Output", grad=None, row_wise=True)
def polygon_box_transform(x):
    """Absolute coordinates of corners, from those relative to each cell of a map of a quarter of the image's size."""
    if x.ndim != 4 or x.shape[1] % 2:
        raise ValueError(f"Input must be NCHW with pairs of channels, but has shape {list(x.shape)}")
    height, width = x.shape[2:]
    across = 4 * jnp.arange(width, dtype=x.dtype)
    down = 4 * jnp.arange(height, dtype=x.dtype)
    pairs = x.reshape(x.shape[0], -1, 2, height, width)
    return jnp.stack([across - pairs[:, :, 0], down[:, None] - pairs[:, :, 1]], 2).reshape(x.shape)


@op(
    "box_decoder_and_assign",
    inputs="PriorBox PriorBoxVar TargetBox BoxScore",
    outputs="DecodeBox OutputAssignBox",
    grad=None,
    lod="aware",
)
def box_decoder_and_assign(prior, prior_variance, target, score, *, box_clip):
    """A box for each class from the offsets of that class, and the box of the class with the highest score.

    Class 0 is the background. Where no other class has a score above -1, the prior itself is taken.
    """
    priors, scale, targets, scores = plain(prior), plain(prior_variance), plain(target), plain(score)
    require_boxes(PriorBox=priors)
    count, classes = priors.shape[0], targets.shape[-1] // 4
    if scale.shape != (4,):
        raise ValueError(f"PriorBoxVar must have 4 numbers, but has shape {list(scale.shape)}")
    if targets.shape != (count, 4 * classes) or scores.shape != (count, classes):
        raise ValueError(
            f"for PriorBox {list(priors.shape)}, TargetBox must be [{count}, 4 x classes] and BoxScore [{count}, "
            f"classes], but they are {list(targets.shape)} and {list(scores.shape)}"
        )
    codes = targets.reshape(count, classes, 4) * scale
    boxes = corners(decode(codes, centered(priors[:, None], False), box_clip), False)
    if classes > 1:
        best = jnp.argmax(scores[:, 1:], 1)[:, None, None]
        chosen = jnp.take_along_axis(boxes[:, 1:], best, 1)[:, 0]
        assigned = jnp.where(jnp.max(scores[:, 1:], 1, keepdims=True) > -1, chosen, priors)
    else:
        assigned = priors
    padded = next((value for value in (prior, target, score) if isinstance(value, Ragged)), None)
    results = ((target, boxes.reshape(targets.shape)), (prior, assigned))
    if padded is None:
        return tuple(rows for _, rows in results)
    return tuple(
        model.with_data(rows) if isinstance(model, Ragged) else padded.as_rows(rows) for model, rows in results
    )
