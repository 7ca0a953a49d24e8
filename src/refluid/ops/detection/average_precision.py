"""The mean average precision of detections."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged
from refluid.ops.sequence.nested import without_padding
from refluid.ops.sequence.packing import require_sequences

_LEAST = 1e-6  # a smaller gain of recall does not count
_POINTS = 11


@dataclass
class Tally:
    """What was found so far: the number of objects of each class, and rows of score and 1 or 0 for its detections."""

    objects: np.ndarray  # [classes]
    right: list[np.ndarray]
    wrong: list[np.ndarray]

    @classmethod
    def empty(cls, classes: int) -> Tally:
        none = np.zeros((0, 2), np.float32)
        return cls(np.zeros(classes, np.int64), [none] * classes, [none] * classes)

    @classmethod
    def restored(cls, objects: Any, right: Any, wrong: Any) -> Tally:
        """The tally that was saved as AccumPosCount, AccumTruePos and AccumFalsePos."""
        counts = np.asarray(objects).reshape(-1).astype(np.int64)
        rows = _images(right, "TruePos"), _images(wrong, "FalsePos")
        lengths = [[len(each) for each in parts] for parts in rows]
        if lengths[0] != lengths[1] or len(lengths[0]) != len(counts):
            raise ValueError(
                f"PosCount is of {len(counts)} classes, so TruePos and FalsePos must be as many sequences, of the same"
                f" lengths, but have lengths {lengths[0]} and {lengths[1]}"
            )
        return cls(counts, *rows)

    def add(self, label: int, scores: np.ndarray, hits: np.ndarray) -> None:
        """Adds detections of a class."""
        hits = hits.astype(np.float32)
        self.right[label] = np.concatenate([self.right[label], np.stack([scores, hits], 1)])
        self.wrong[label] = np.concatenate([self.wrong[label], np.stack([scores, 1 - hits], 1)])

    def saved(self) -> tuple[np.ndarray, Ragged, Ragged]:
        """AccumPosCount, AccumTruePos and AccumFalsePos."""
        lengths = [len(rows) for rows in self.right]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        rows = (np.concatenate(each).astype(np.float32) for each in (self.right, self.wrong))
        right, wrong = (Ragged(each, (offsets,), max([1, *lengths])) for each in rows)
        return self.objects.astype(np.int32)[:, None], right, wrong


def _infer(inputs: Described, attrs: dict[str, Any]) -> Described:
    for slot, widths in (("DetectRes", (6,)), ("Label", (5, 6))):
        shape = inputs[slot][0].shape
        if len(shape) != 2 or shape[1] not in widths:
            wanted = " or ".join(map(str, widths))
            raise ValueError(f"{slot} must have rows of {wanted} numbers, but has shape {list(shape)}")
    return {"MAP": [ShapeDtype((1,), np.dtype(np.float32))]}


@op(
    "detection_map",
    inputs="DetectRes Label HasState? PosCount? TruePos? FalsePos?",
    outputs="AccumPosCount AccumTruePos AccumFalsePos MAP",
    grad=None,
    host=True,
    lod="aware",
    infer=_infer,
)
def detection_map(
    detections,
    labels,
    has_state=None,
    objects=None,
    right=None,
    wrong=None,
    *,
    class_num,
    background_label=0,
    overlap_threshold=0.5,
    evaluate_difficult=True,
    ap_type="integral",
):
    """The mean over classes of the average precision of detections, these and those of the given state.

    A detection is a row of class, score and box; a label one of class, whether it is difficult (may be left out), and
    box. An object is found by the best detection that overlaps with it.
    """
    if ap_type not in ("integral", "11point"):
        raise ValueError(f"ap_type must be integral or 11point, not {ap_type!r}")
    has_state = has_state is not None and bool(np.asarray(has_state).reshape(-1)[0])
    tally = Tally.restored(objects, right, wrong) if has_state else Tally.empty(class_num)
    found, truth = (_images(value, slot) for value, slot in ((detections, "DetectRes"), (labels, "Label")))
    if len(found) != len(truth):
        raise ValueError(f"DetectRes has {len(found)} sequences, but Label has {len(truth)}")
    for own, known in zip(found, truth, strict=True):
        _count(tally, own, known, overlap_threshold, evaluate_difficult)
    precision = np.asarray([_mean_precision(tally, background_label, ap_type)], np.float32)
    return *tally.saved(), precision


def _images(value: Any, slot: str) -> list[np.ndarray]:
    value = without_padding(require_sequences(value, slot))
    return np.split(np.asarray(value.data, np.float32), np.asarray(value.offsets[-1])[1:-1])


def _count(tally: Tally, found: np.ndarray, truth: np.ndarray, threshold: float, evaluate_difficult: bool) -> None:
    """Adds the detections and the objects of an image."""
    loops = import_module("refluid.kernels.host.detections")
    labels, known = found[:, 0].astype(np.int64), truth[:, 0].astype(np.int64)
    for slot, each in (("DetectRes", labels), ("Label", known)):
        if np.any((each < 0) | (each >= len(tally.objects))):
            raise ValueError(f"{slot} has classes that are not in [0, {len(tally.objects)})")
    counts = (truth[:, 1] == 0) | evaluate_difficult if truth.shape[1] == 6 else np.ones(len(truth), bool)
    np.add.at(tally.objects, known[counts], 1)
    for label in np.unique(labels):
        own, objects = found[labels == label], known == label
        if not objects.any():
            tally.add(label, own[:, 1], np.zeros(len(own)))
            continue
        own = own[np.argsort(-own[:, 1], kind="stable")]
        boxes, there = (np.ascontiguousarray(each) for each in (own[:, 2:], truth[objects, -4:]))
        outcome = loops.outcomes(boxes, there, np.ascontiguousarray(counts[objects]), np.float32(threshold))
        counted = outcome != loops.IGNORED
        tally.add(label, own[counted, 1], outcome[counted] == loops.FOUND)


def _mean_precision(tally: Tally, background_label: int, ap_type: str) -> float:
    average = _precision_at_points if ap_type == "11point" else _area
    precisions = []
    for objects, right, wrong in zip(tally.objects, tally.right, tally.wrong, strict=True):
        # Real Fluid compares the number of objects, not the class, with the label of the background.
        if not objects or objects == background_label:
            continue
        right, wrong = _best_first(right), _best_first(wrong)
        precisions.append(average(right / (right + wrong), right / objects) if len(right) else 0.0)
    return float(np.mean(precisions)) if precisions else 0.0


def _best_first(rows: np.ndarray) -> np.ndarray:
    """How many of the best detections count, for each number of them."""
    return np.cumsum(rows[np.argsort(-rows[:, 0], kind="stable"), 1])


def _area(precision: np.ndarray, recall: np.ndarray) -> float:
    """The precision integrated over recall."""
    gain = np.diff(recall, prepend=0)
    return float(np.sum(precision * np.where(gain > _LEAST, gain, 0)))


def _precision_at_points(precision: np.ndarray, recall: np.ndarray) -> float:
    """The mean of the best precision at recalls of at least 0, 0.1, ..., 1."""
    best = [precision[recall >= np.float32(i / 10)].max(initial=0) for i in range(_POINTS)]
    return float(np.mean(best))
