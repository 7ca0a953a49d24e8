"""Which object each prior of a one-stage detector has to find, and which priors without one count as negatives."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid import kernels
from refluid.ops.core.infer import Described, ShapeDtype, described_like
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.detection.per_image import largest
from refluid.ops.sequence.packing import offsets_of, require_single_level, rows_per_sequence

_LEAST = 1e-6  # what is less does not match at all


def _infer_match(inputs: Described, attrs: dict[str, Any]) -> Described:
    distance = inputs["DistMat"][0]
    if len(distance.shape) != 2:
        raise ValueError(f"DistMat must have 2 dims, objects and priors, but has shape {list(distance.shape)}")
    return {
        "ColToRowMatchIndices": [ShapeDtype(distance.shape, np.dtype(np.int32))],
        "ColToRowMatchDist": [ShapeDtype(distance.shape, distance.dtype)],
    }


@op(
    "bipartite_match",
    inputs="DistMat",
    outputs="ColToRowMatchIndices ColToRowMatchDist",
    grad=None,
    lod="aware",
    infer=_infer_match,
)
def bipartite_match(distance, *, match_type="bipartite", dist_threshold=0.5):
    """The row, an object, that each column, a prior, is matched with in each image, and how close they are; -1 and 0.

    The closest pair is matched first, then the closest of the others. Among equally close pairs, the first column wins,
    then the first row. With ``per_prediction``, a column that is left gets its closest row, if close enough.
    """
    if match_type not in ("bipartite", "per_prediction"):
        raise ValueError(f"match_type must be bipartite or per_prediction, not {match_type!r}")
    if not isinstance(distance, Ragged) or not distance.levels:
        rows = plain(distance)
        distance = Ragged(rows, (jnp.asarray([0, rows.shape[0]], jnp.int32),), rows.shape[0])
    distance = require_single_level(distance, "DistMat")
    threshold = dist_threshold if match_type == "per_prediction" else np.inf
    kernel = kernels.find("matching") if distance.dtype == jnp.float32 and distance.shape[0] else None
    match = _match if kernel is None else kernel.match
    found, close = match(distance.data, distance.offsets[-1], distance.longest, max(threshold, _LEAST))
    return tuple(rows_per_sequence(distance, each) for each in (found.astype(jnp.int32), close))


def _match(distance: Any, offsets: Any, longest: int, threshold: float) -> tuple[Any, Any]:
    """The rows, and how close they are, [images, columns]; see `bipartite_match`."""
    images, columns = offsets.shape[0] - 1, distance.shape[1]
    by_column = Ragged(distance, (offsets,), longest).to_padded().swapaxes(1, 2)
    by_column = jnp.where(by_column >= _LEAST, by_column, -1)
    image = jnp.arange(images)

    def step(_, state):
        left, found, close = state
        best = jnp.argmax(left.reshape(images, -1), 1)
        column, row = jnp.divmod(best, longest)
        value = left[image, column, row]
        column = jnp.where(value > 0, column, columns)  # columns: nowhere
        left = left.at[image, column].set(-1, mode="drop")
        left = left.at[image, :, jnp.where(value > 0, row, longest)].set(-1, mode="drop")
        return left, found.at[image, column].set(row, mode="drop"), close.at[image, column].set(value, mode="drop")

    found = jnp.full((images, columns), -1, jnp.int64)
    if not longest:
        return found, jnp.zeros((images, columns), distance.dtype)
    close = jnp.zeros((images, columns), distance.dtype)
    _, found, close = lax.fori_loop(0, min(longest, columns), step, (by_column, found, close))
    best, nearest = by_column.max(2), jnp.argmax(by_column, 2)
    more = (found < 0) & (best >= jnp.asarray(threshold, distance.dtype))
    return jnp.where(more, nearest, found), jnp.where(more, best, close)


def _infer_targets(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, matches = inputs["X"][0], inputs["MatchIndices"][0]
    if len(x.shape) != 3 or len(matches.shape) != 2:
        raise ValueError(
            f"X must have 3 dims and MatchIndices 2, but their shapes are {list(x.shape)} and {list(matches.shape)}"
        )
    weight = ShapeDtype((*matches.shape, 1), np.dtype(np.float32))
    return {"Out": [ShapeDtype((*matches.shape, x.shape[2]), x.dtype)], "OutWeight": [weight]}


@op(
    "target_assign",
    inputs="X MatchIndices NegIndices?",
    outputs="Out OutWeight",
    grad=None,
    lod="aware",
    infer=_infer_targets,
)
def target_assign(x, matches, negatives=None, *, mismatch_value=0):
    """What each prior has to predict, that of the object it is matched with, and whether it counts: 1 or 0.

    Priors without a match get ``mismatch_value``; only the negatives among them count.
    """
    x, matches = require_single_level(x, "X"), plain(matches)
    images, priors = matches.shape
    if x.sequences != images and not x.hidden:
        raise ValueError(f"X has {x.sequences} sequences, but MatchIndices is for {images} images")
    has_match = matches >= 0
    if x.shape[0]:
        rows = jnp.where(has_match, x.offsets[-1][:images, None] + matches, 0)
        taken = x.data[rows, jnp.arange(priors) % x.shape[1]]
    else:
        taken = jnp.zeros((images, priors, x.shape[2]), x.dtype)
    counts = has_match
    if negatives is not None:
        negatives = require_single_level(negatives, "NegIndices")
        place = jnp.where(negatives.real(), plain(negatives).reshape(-1), priors)
        is_negative = jnp.zeros_like(counts).at[negatives.owners(), place].set(True, mode="drop")
        has_match, counts = has_match & ~is_negative, counts | is_negative
    out = jnp.where(has_match[..., None], taken, jnp.asarray(mismatch_value, x.dtype))
    return out, counts[..., None].astype(jnp.float32)


def _infer_mined(inputs: Described, attrs: dict[str, Any]) -> Described:
    negatives = ShapeDtype((-1, 1), np.dtype(np.int32), lod_level=1)
    return {"NegIndices": [negatives], **described_like("MatchIndices", out="UpdatedMatchIndices")(inputs, attrs)}


@op(
    "mine_hard_examples",
    inputs="ClsLoss LocLoss? MatchIndices MatchDist",
    outputs="NegIndices UpdatedMatchIndices",
    grad=None,
    lod="aware",
    infer=_infer_mined,
    finds_rows=True,
)
def mine_hard_examples(
    class_loss,
    place_loss,
    matches,
    distance,
    *,
    neg_pos_ratio=1.0,
    neg_dist_threshold=0.5,
    sample_size=0,
    mining_type="max_negative",
):
    """The priors of each image, in order, that count as negatives, and the matches that remain.

    max_negative: of the priors without a match that are far from any object, those with the largest losses, in
    proportion to the matches. hard_example: of all priors, the ``sample_size`` with the largest losses; others lose
    their match.
    """
    loss, matches, distance = plain(class_loss), plain(matches), plain(distance)
    has_match = matches >= 0
    loss = loss.reshape(matches.shape)
    if mining_type == "max_negative":
        candidates = ~has_match & (distance < jnp.asarray(neg_dist_threshold, distance.dtype))
        wanted = (has_match.sum(1) * jnp.float32(neg_pos_ratio)).astype(jnp.int32)
        chosen = largest(loss, candidates, wanted)
        return _columns(chosen), matches
    if mining_type != "hard_example":
        raise ValueError(f"mining_type must be max_negative or hard_example, not {mining_type!r}")
    if sample_size <= 0:
        raise ValueError(f"sample_size must be positive to mine hard examples, not {sample_size}")
    if place_loss is not None:
        loss = loss + plain(place_loss).reshape(matches.shape)
    chosen = largest(loss, jnp.ones_like(has_match), jnp.full(matches.shape[:1], sample_size))
    return _columns(chosen & ~has_match), jnp.where(chosen, matches, -1)


def _columns(mask: Any) -> Ragged:
    """The columns of each row in which the mask is true, in order; a sequence for each row."""
    (places,) = jnp.nonzero(mask.reshape(-1), size=mask.size, fill_value=0)
    columns = (places % max(mask.shape[1], 1)).astype(jnp.int32)
    return Ragged(columns[:, None], (offsets_of(mask.sum(1, dtype=jnp.int32)),), mask.shape[1])
