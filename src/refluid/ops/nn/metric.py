"""Metrics: counts and rates without gradients. Accumulating metrics take their state as input and return it."""

from __future__ import annotations

import jax.numpy as jnp

from refluid.ops.core.checks import require_in_range
from refluid.ops.core.registry import op
from refluid.ops.core.shapes import require_one_for_each_row
from refluid.ops.core.values import Ragged, plain


def _real(*inputs):
    """The mask of real rows, or None if all are real."""
    return next((value.real() for value in inputs if isinstance(value, Ragged)), None)


@op("accuracy", inputs="Out Indices Label", outputs="Accuracy Correct Total", grad=None, lod="aware")
def accuracy(out, indices, label):
    """The fraction of rows whose label is among their indices, with the two counts."""
    require_one_for_each_row(indices, Label=label)
    real = _real(indices, label)
    hit = (plain(indices) == plain(label).reshape(-1, 1)).any(1)
    total = jnp.asarray(hit.shape[0] if real is None else real.sum(), jnp.int32)
    hits = (hit if real is None else hit & real).sum(dtype=jnp.int32).reshape(1)
    return hits.astype(jnp.float32) / total.astype(jnp.float32), hits, total.reshape(1)


@op("auc", inputs="Predict Label StatPos StatNeg", outputs="AUC StatPosOut StatNegOut", grad=None, lod="aware")
def auc(predict, label, positives, negatives, *, curve="ROC", num_thresholds=8191, slide_steps=1):
    """The area under the ROC curve, from histograms of positive and negative predictions that include this batch.

    With ``slide_steps`` the state holds the histograms of the last batches, then their sum, then a step counter, and
    the area is that of the sum. Otherwise it is one histogram of all batches. ``curve`` has no effect, as in Fluid.
    """
    if predict.shape[-1] > 2:
        raise ValueError(f"Predict {list(predict.shape)} must have one or two columns, as there are two classes")
    require_one_for_each_row(predict, Label=label)
    real = _real(predict, label)
    predict, label = plain(predict), plain(label)
    buckets = num_thresholds + 1
    places = jnp.clip((predict[:, -1] * num_thresholds).astype(jnp.int32), 0, num_thresholds)
    label = label.reshape(-1)

    def histogram(members):
        members = members if real is None else members & real
        return jnp.zeros(buckets, jnp.int64).at[places].add(members.astype(jnp.int64))

    new_positives = _slide(positives, histogram(label > 0), slide_steps)
    new_negatives = _slide(negatives, histogram(label == 0), slide_steps)
    counted = slice(slide_steps * buckets, (slide_steps + 1) * buckets)
    area = _area(new_positives.reshape(-1)[counted], new_negatives.reshape(-1)[counted])
    return area, new_positives, new_negatives


def _slide(state, batch, steps):
    """The state with the oldest histogram replaced by the newest."""
    flat = state.reshape(-1)
    if steps == 0:  # real Fluid's layer leaves room for a step counter, and the first run drops it
        return (flat[: batch.size] + batch).reshape(1, -1)
    windows, step = flat[:-1].reshape(steps + 1, -1), flat[-1]
    oldest = step % steps
    total = windows[steps] - windows[oldest] + batch
    windows = windows.at[oldest].set(batch).at[steps].set(total)
    return jnp.append(windows.reshape(-1), step + 1).reshape(state.shape)


def _area(positives, negatives):
    """Trapezoids from the highest threshold down, in float64."""
    higher = jnp.cumsum(positives[::-1]).astype(jnp.float64)
    wider = negatives[::-1].astype(jnp.float64)
    area = (wider * (higher - positives[::-1] * 0.5)).sum()
    rectangle = higher[-1] * wider.sum()
    both = (higher[-1] > 0) & (wider.sum() > 0)
    return jnp.where(both, area / jnp.where(both, rectangle, 1.0), area).reshape(1)


@op(
    "mean_iou",
    inputs="Predictions Labels InWrongs*? InCorrects*? InMeanIou*?",
    outputs="OutMeanIou OutWrong OutCorrect",
    grad=None,
    lod=None,
)
def mean_iou(predictions, labels, wrongs, corrects, means, *, num_classes):
    """The mean of correct / (correct + wrong) over the classes seen; a mistake counts as wrong for both classes."""
    require_in_range(labels, num_classes, slot="Labels")
    predictions, labels = predictions.reshape(-1), labels.reshape(-1)
    right = (predictions == labels).astype(jnp.int32)
    counts = jnp.zeros(num_classes, jnp.int32)
    correct = counts.at[labels].add(right, mode="drop") + sum(corrects)
    wrong = counts.at[labels].add(1 - right, mode="drop").at[predictions].add(1 - right, mode="drop") + sum(wrongs)
    seen = correct + wrong
    shares = correct.astype(jnp.float32) / jnp.maximum(seen, 1)
    mean = shares.sum() / (seen > 0).sum(dtype=jnp.float32)
    return mean.reshape(1) + sum(means), wrong, correct


@op(
    "precision_recall",
    inputs="MaxProbs Indices Labels Weights? StatesInfo?",
    outputs="BatchMetrics AccumMetrics AccumStatesInfo",
    grad=None,
    lod=None,
)
def precision_recall(max_probs, indices, labels, weights=None, states=None, *, class_number):
    """Macro and micro precision, recall and F1, of the batch and accumulated.

    A class's counts are its true positives, false positives, true negatives and false negatives.
    """
    require_in_range(labels, class_number, slot="Labels")
    require_one_for_each_row(indices, Labels=labels)
    classes = jnp.arange(class_number)
    given = indices.reshape(-1, 1) == classes
    true = labels.reshape(-1, 1) == classes
    weights = jnp.ones_like(max_probs) if weights is None else weights
    weights = weights.reshape(-1, 1)
    kinds = (given & true, given & ~true, ~given & ~true, ~given & true)
    batch = jnp.stack([jnp.where(kind, weights, 0.0).sum(0) for kind in kinds], 1)
    total = batch if states is None else batch + states
    return _rates(batch), _rates(total), total


def _rates(counts):
    """Macro, then micro precision, recall and F1, as float64."""
    rates = []
    for group in (counts, counts.sum(0, keepdims=True)):
        hits, false_alarms, _, misses = group.T
        precision, recall = _share(hits, false_alarms).mean(), _share(hits, misses).mean()
        both = precision + recall
        rates += [precision, recall, jnp.where(both > 0, 2 * precision * recall / jnp.where(both > 0, both, 1.0), 0.0)]
    return jnp.stack(rates).astype(jnp.float64)


def _share(hits, others):
    """hits / (hits + others), or 1 where both are 0."""
    both = hits + others
    return jnp.where(both > 0, hits / jnp.where(both > 0, both, 1.0), 1.0)
