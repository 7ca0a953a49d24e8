"""Beam search: the best continuations of the best sentences so far, and the sentences read back in the end.

How many sentences are alive is known only when it is done, so both run on the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refluid.ops.infer import Described, ShapeDtype
from refluid.ops.nested import visible_offsets, without_padding
from refluid.ops.registry import op
from refluid.ops.sequence_rows import require_sequences
from refluid.ops.steps import as_list
from refluid.ops.values import Ragged, plain


def _infer_selected(inputs: Described, attrs: dict[str, Any]) -> Described:
    ids, scores = inputs["pre_ids"][0].dtype, inputs["pre_scores"][0].dtype
    return {
        "selected_ids": [ShapeDtype((-1, 1), ids)],
        "selected_scores": [ShapeDtype((-1, 1), scores)],
        "parent_idx": [ShapeDtype((-1,), np.dtype(np.int32))],
    }


@op(
    "beam_search",
    inputs="pre_ids pre_scores ids? scores",
    outputs="selected_ids selected_scores parent_idx",
    grad=None,
    host=True,
    lod="aware",
    infer=_infer_selected,
)
def beam_search(pre_ids, pre_scores, ids, scores, *, level=0, beam_size, end_id, is_accumulated=True):
    """For each source the ``beam_size`` best continuations of its sentences, with the sentences they continue.

    A sentence that has ended goes on as itself, with its score. A source all of whose chosen sentences had ended before
    is left out. Of equal scores the later sentence wins, and within a sentence the first candidate.
    """
    scores = without_padding(require_sequences(scores, "scores"))
    sources = _row_offsets(scores, level)
    last_ids, last_scores = (np.asarray(plain(without_padding(x))).reshape(-1) for x in (pre_ids, pre_scores))
    values = np.asarray(scores.data)
    if values.ndim != 2 or len(values) != len(last_ids):
        raise ValueError(f"scores has shape {list(values.shape)}, but there are {len(last_ids)} sentences")
    if not is_accumulated:
        values = last_scores[:, None] + np.log(values)
    if ids is None:
        candidates = np.broadcast_to(np.arange(values.shape[1], dtype=last_ids.dtype), values.shape)
    else:
        candidates = np.asarray(plain(without_padding(ids)))
    ended = last_ids == end_id
    first = np.arange(values.shape[1]) == 0
    candidates = np.where(ended[:, None], end_id, candidates)
    values = np.where(ended[:, None], np.where(first, last_scores[:, None], -np.inf), values).astype(scores.dtype)
    allowed = ~ended[:, None] | first

    chosen = [_best(values, allowed, start, end, beam_size) for start, end in zip(sources, sources[1:], strict=False)]
    kept = [c for c in chosen if not (ended[c[:, 0]] & (candidates[c[:, 0], c[:, 1]] == end_id)).all()]
    pairs = np.concatenate([*kept, np.zeros((0, 2), np.int64)])
    parents, columns = pairs[:, 0], pairs[:, 1]
    counts = np.bincount(parents, minlength=len(last_ids))
    offsets = (sources.astype(np.int32), np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    longest = max(int(counts.max(initial=0)), 1)
    selected = [x[parents, columns].reshape(-1, 1) for x in (candidates.astype(last_ids.dtype), values)]
    return *(Ragged(x, offsets, longest) for x in selected), parents.astype(np.int32)


def _row_offsets(x: Ragged, level: int) -> np.ndarray:
    """The offsets of a level, counted in rows."""
    levels = [np.asarray(offsets) for offsets in visible_offsets(x)]
    if not 0 <= level < len(levels):
        raise ValueError(f"level {level} is not one of the {len(levels)} levels of scores")
    offsets = levels[level]
    for inner in levels[level + 1 :]:
        offsets = inner[offsets]
    return offsets


def _best(values: np.ndarray, allowed: np.ndarray, start: int, end: int, count: int) -> np.ndarray:
    """Rows and columns of the largest values in some rows, by row and, within a row, largest first.

    Among equals Fluid's order is that of a list of ``count`` places in which each candidate in turn moves up behind those
    that are not smaller, and pushes out the last one unless it is smaller than that itself.
    """
    rows, columns = np.nonzero(allowed[start:end])
    rows = rows + start
    points = values[rows, columns]
    if len(points) > count:  # the others cannot stay
        rows, columns = (x[points >= np.partition(points, -count)[-count]] for x in (rows, columns))
    best: list[tuple[Any, int, int]] = []
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        point = values[row, column]
        if len(best) == count:
            if (point, row) < best[-1][:2]:
                continue
            best.pop()
        place = len(best)
        while place and best[place - 1][:2] < (point, row):
            place -= 1
        best.insert(place, (point, row, column))
    return np.array([(row, column) for _, row, column in sorted(best, key=lambda each: each[1])], np.int64).reshape(
        -1, 2
    )


def _infer_sentences(inputs: Described, attrs: dict[str, Any]) -> Described:
    return {}


@op(
    "beam_search_decode",
    inputs="Ids Scores",
    outputs="SentenceIds SentenceScores",
    grad=None,
    host=True,
    lod="aware",
    infer=_infer_sentences,
)
def beam_search_decode(ids, scores, *, beam_size, end_id):
    """The sentences of each source, best first, read back from what `beam_search` chose in every step."""
    steps = [_step(i, s) for i, s in zip(as_list(ids), as_list(scores), strict=True)]
    if not steps:
        raise ValueError("Ids holds no steps")
    found = [_sentences(steps, source, end_id) for source in range(len(steps[0][2]) - 1)]
    found = [sorted(sentences, key=lambda sentence: -sentence[1][0]) for sentences in found]
    sentences = [sentence for each in found for sentence in each]
    offsets = (_offsets(map(len, found)), _offsets(len(words) for words, _ in sentences))
    longest = max((len(words) for words, _ in sentences), default=1)
    columns = zip(*((words[::-1], points[::-1]) for words, points in sentences), strict=True)
    dtypes = (steps[0][0].dtype, steps[0][1].dtype)
    rows = [np.concatenate(column).astype(dtype) for column, dtype in zip(columns, dtypes, strict=True)]
    rows = rows or [np.zeros(0, dtype) for dtype in dtypes]
    return tuple(Ragged(each, offsets, longest) for each in rows)


def _step(ids: Any, scores: Any) -> tuple[np.ndarray, ...]:
    """Ids and scores of a step, the sentences of each source, and the words of each sentence."""
    ids = without_padding(require_sequences(ids, "Ids"))
    if ids.levels != 2:
        raise ValueError(f"Ids has {ids.levels} levels; sources and their sentences are 2")
    sources, sentences = (np.asarray(offsets) for offsets in ids.offsets)
    return np.asarray(ids.data).reshape(-1), np.asarray(plain(without_padding(scores))).reshape(-1), sources, sentences


def _sentences(steps: list[tuple[np.ndarray, ...]], source: int, end_id: int) -> list[tuple[list, list]]:
    """Words and scores of the sentences of one source, last word first.

    They begin in the last step in which the source has any, and each word tells which sentence of the step before it
    continues. A sentence that has ended repeats its last word: one of them is kept.
    """
    found: list[tuple[list, list]] = []
    places: list[int] = []
    for ids, scores, sources, sentences in reversed(steps):
        if not found:
            places = list(range(sentences[sources[source]], sentences[sources[source + 1]]))
            found = [([], []) for _ in places]
        for (words, points), place in zip(found, places, strict=True):
            if not words or ids[place] != end_id:
                words.append(ids[place])
                points.append(scores[place])
        places = [int(np.searchsorted(sentences, place, side="right")) - 1 for place in places]
    return found


def _offsets(lengths: Any) -> np.ndarray:
    return np.concatenate([[0], np.cumsum([*lengths])]).astype(np.int32)
