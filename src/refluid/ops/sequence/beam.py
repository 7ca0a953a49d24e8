"""Beam search: selecting the best continuations at each step, and decoding the sentences at the end.

A step may select fewer sentences than there is room for; the offsets of its results give their number.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.ops.control.steps import as_list
from refluid.ops.core.infer import Described, ShapeDtype, described_elsewhere
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, last_at_most, plain
from refluid.ops.sequence.nested import is_known, visible_offsets, without_padding
from refluid.ops.sequence.packing import offsets_of, require_sequences


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
    lod="aware",
    infer=_infer_selected,
)
def beam_search(pre_ids, pre_scores, ids, scores, *, level=0, beam_size, end_id, is_accumulated=True):
    """The ``beam_size`` best continuations of the sentences of each source, and the sentences they continue.

    A finished sentence is kept unchanged, with its score. A source is dropped if all its selected sentences ended
    earlier.
    """
    scores = require_sequences(scores, "scores")
    sources = _row_offsets(scores, level)
    words, points = plain(pre_ids).reshape(-1), plain(pre_scores).reshape(-1)
    count, width = scores.shape
    if count != len(words):
        raise ValueError(f"scores has shape {list(scores.shape)}, but there are {len(words)} sentences")
    values = scores.data if is_accumulated else points[:, None] + jnp.log(scores.data)
    columns = jnp.arange(width, dtype=words.dtype)
    candidates = jnp.broadcast_to(columns, values.shape) if ids is None else plain(ids)
    ended = words == end_id
    allowed = jnp.where(ended[:, None], columns == 0, True) & scores.real()[:, None]
    candidates = jnp.where(ended[:, None], end_id, candidates)
    values = jnp.where(ended[:, None], points[:, None], values)

    rows, picked, real = _best(values, allowed, sources, beam_size)  # [sources, beam_size] each
    goes_on = (real & ~(ended[rows] & (candidates[rows, picked] == end_id))).any(1, keepdims=True)
    order = jnp.argsort(jnp.where(real & goes_on, rows, count).reshape(-1), stable=True)
    rows, picked, real = (x.reshape(-1)[order] for x in (rows, picked, real & goes_on))
    chosen = jnp.zeros(count, jnp.int32).at[jnp.where(real, rows, count)].add(1, mode="drop")
    offsets = (*scores.offsets[: scores.hidden], sources, offsets_of(chosen))
    selected = (x[rows, picked].reshape(-1, 1) for x in (candidates.astype(words.dtype), values))
    results = [Ragged(x, offsets, beam_size, scores.hidden) for x in selected]
    results.append(results[0].as_rows(rows.astype(jnp.int32)))
    return results if not is_known(*offsets) else [without_padding(each) for each in results]


def _row_offsets(x: Ragged, level: int) -> Any:
    """The offsets of a level, counted in rows."""
    levels = visible_offsets(x)
    if not 0 <= level < len(levels):
        raise ValueError(f"level {level} is not one of the {len(levels)} levels of scores")
    offsets = jnp.asarray(levels[level])
    for inner in levels[level + 1 :]:
        offsets = inner[offsets]
    return offsets


def _best(values: Any, allowed: Any, sources: Any, count: int) -> tuple[Any, Any, Any]:
    """Rows and columns of the ``count`` largest values of each source, largest first, and whether each exists.

    Among equal values, later rows come first and, within a row, earlier columns. Fluid scans the candidates in order,
    and a candidate that equals the last one of a full list replaces it. So if more equal candidates follow after all
    the better ones, the last selected one is a later one.
    """
    height, width = values.shape
    owner = jnp.clip(last_at_most(sources, jnp.arange(height)), 0, sources.shape[0] - 2)
    places = jnp.arange(height)[:, None] * -width + jnp.arange(width)  # smaller for larger rows
    keys = [jnp.where(allowed, owner[:, None], sources.shape[0]), -values, places]
    ordered = lax.sort([key.reshape(-1) for key in keys], num_keys=3)[2]
    there = jnp.zeros(sources.shape[0] - 1, jnp.int32).at[owner].add(allowed.sum(1, dtype=jnp.int32))
    place = offsets_of(there)[:-1, None] + jnp.arange(count)
    real = jnp.arange(count) < there[:, None]
    found = ordered[jnp.minimum(place, ordered.shape[0] - 1)]
    rows = (width - 1 - found) // width
    columns = found + rows * width

    last, better = rows[:, -1], rows[:, :-1]
    points = values[rows, columns]
    equal = allowed[last] & (values[last] == points[:, -1:])
    latest = jnp.where(equal, jnp.arange(width), -1).max(1)
    above = jnp.where((better == last[:, None]) & (points[:, :-1] > points[:, -1:]), columns[:, :-1], -1)
    comes_last = (better <= last[:, None]).all(1) & (above < latest[:, None]).all(1)
    replaced = jnp.where(comes_last, jnp.maximum(latest, columns[:, -1]), columns[:, -1])
    return jnp.where(real, rows, 0), jnp.where(real, columns.at[:, -1].set(replaced), 0), real


@op(
    "beam_search_decode",
    inputs="Ids Scores",
    outputs="SentenceIds SentenceScores",
    grad=None,
    host=True,
    lod="aware",
    infer=described_elsewhere,
)
def beam_search_decode(ids, scores, *, beam_size, end_id):
    """The sentences of each source, best first, traced back through the selections of `beam_search` in every step."""
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

    Tracing starts at the last step in which the source has sentences; each word refers to the sentence of the previous
    step that it continues. A finished sentence repeats its last word, which is kept once.
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


@op("gather_tree", inputs="Ids Parents", outputs="Out", grad=None, lod=None)
def gather_tree(ids, parents):
    """The words [time, batch, beam] of the sentences that end at each place of the last step."""
    batch = jnp.arange(ids.shape[1])[:, None]

    def step(places, now):
        words, before = now
        return before[batch, places].astype(places.dtype), words[batch, places]

    places = jnp.broadcast_to(jnp.arange(ids.shape[2]), ids.shape[1:])
    return lax.scan(step, places, (ids, parents), reverse=True)[1]
