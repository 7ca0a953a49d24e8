"""Splitting feeds over the replicas of a program, and putting together what they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from refluid.errors import FeedError
from refluid.feeding import feed_value
from refluid.fetching import as_numpy, as_tensor
from refluid.ir.program import Program
from refluid.jobs import exchanges_rows
from refluid.lowering.buckets import Buckets
from refluid.lowering.joined import Copies, is_even, padded, parts_of, size_of
from refluid.meshes import Largest, Replicas
from refluid.tensors import LoDTensor, SelectedRowsTensor

Feed = Mapping[str, Any]


def read_feeds(
    program: Program, feed: Feed | Sequence[Feed], target: Replicas, buckets: Buckets, exact: bool
) -> tuple[tuple[str, ...], list[Any]]:
    """Names and values of a feed: of each value, the rows of all replicas of this process, one after the other.

    Where replicas get different numbers of samples, all get as many rows, some of which are padding. The replicas of
    other processes are considered if the program exchanges rows with them.
    """
    count = target.local
    largest = target.largest if exchanges_rows(program) else None
    if (
        largest is None
        and isinstance(feed, Mapping)
        and not any(isinstance(v, LoDTensor) and v._lod for v in feed.values())
    ):
        values = [np.asarray(feed_value(program.global_block(), name, value)) for name, value in feed.items()]
        if all(value.ndim and len(value) and len(value) % count == 0 for value in values):
            return tuple(feed), values
    feeds = split_feed(program, feed, count)
    sequences = [{n: v for n, v in each.items() if isinstance(v, LoDTensor)} for each in feeds]
    names = tuple(feeds[0])
    agree = None if largest is None else partial(largest, f"sequences of {', '.join(sequences[0])}")
    fitted = buckets.fit_all(sequences, exact, agree) if sequences[0] else [{}] * count
    parts = [[ragged.get(name, each[name]) for ragged, each in zip(fitted, feeds, strict=True)] for name in names]
    most, is_uneven = _most(names, parts, largest, exact)
    if is_uneven:
        if exact:
            sizes = {name: [size_of(part) for part in each] for name, each in zip(names, parts, strict=True)}
            raise ValueError(
                f"the devices get different numbers of samples or rows ({_text(sizes)} here), which an op of this "
                "program cannot be padded for; feed batches that can be divided evenly, for example with drop_last=True"
            )
        parts = [padded(each, size) for each, size in zip(parts, most, strict=True)]
    return names, [jax.tree.map(lambda *leaves: np.concatenate(leaves), *each) for each in parts]


def _most(
    names: Sequence[str], parts: Sequence[Sequence[Any]], largest: Largest | None, exact: bool
) -> tuple[list[int], bool]:
    """Of each value, the most samples that a replica has, and whether others have fewer."""
    counts = [[size_of(part) for part in each] for each in parts]
    if largest is None:
        return [max(each) for each in counts], not all(map(is_even, parts))
    if exact:  # numbers of rows matter as well; otherwise they have been agreed on
        counts += [[len(jax.tree.leaves(part)[0]) for part in each] for each in parts]
    found = list(largest(", ".join(names), [*map(max, counts), *(-min(each) for each in counts)]))
    most, least = found[: len(counts)], found[len(counts) :]
    return most[: len(names)], any(one != -other for one, other in zip(most, least, strict=True))


def _text(sizes: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name}: {' and '.join(map(str, each))}" for name, each in sizes.items())


def split_feed(program: Program, feed: Feed | Sequence[Feed], count: int) -> list[dict[str, Any]]:
    """One feed for each replica, of arrays and of LoDTensors with sequences."""
    block = program.global_block()
    if isinstance(feed, Mapping):
        values = {name: _read(block, name, value) for name, value in feed.items()}
        parts = {name: _split(name, value, count) for name, value in values.items()}
        return [{name: each[replica] for name, each in parts.items()} for replica in range(count)]
    if len(feed) != count:
        raise ValueError(f"the feed is a list of {len(feed)} dicts, but the program runs on {count} devices")
    for each in feed:
        if not isinstance(each, Mapping):
            raise TypeError(f"a list of feeds must contain dicts of name to value, not {type(each).__name__}")
        if set(each) != set(feed[0]):
            raise ValueError(f"all feeds of a list must have the same names, not {sorted(feed[0])} and {sorted(each)}")
    return [{name: _read(block, name, each[name]) for name in feed[0]} for each in feed]


def _read(block: Any, name: str, value: Any) -> Any:
    return value if isinstance(value, LoDTensor) and value._lod else np.asarray(feed_value(block, name, value))


def _check_size(name: str, samples: int, count: int) -> None:
    if samples < count:
        raise FeedError(
            name,
            f"{samples} sample{'s' if samples != 1 else ''} cannot be split over {count} devices",
            "feed at least one sample for each device, or use fewer devices (CPU_NUM, places)",
        )


def _split(name: str, value: Any, count: int) -> list[Any]:
    if isinstance(value, LoDTensor):
        bounds = _bounds(name, len(value._lod[0]) - 1, count)
        return [_sequences(value, *each) for each in bounds]
    return [value[begin:end] for begin, end in _bounds(name, len(value), count)]


def _bounds(name: str, samples: int, count: int) -> list[tuple[int, int]]:
    """Where the samples of each replica begin and end: as many for each, fewer for the last, as in real Fluid.

    Where that leaves nothing for the last one, which real Fluid refuses, the samples are spread evenly.
    """
    _check_size(name, samples, count)
    share = -(-samples // count)
    starts = [min(share * replica, samples) for replica in range(count + 1)]
    if starts[-2] == samples:
        starts = [samples * replica // count for replica in range(count + 1)]
    return list(pairwise(starts))


def _sequences(tensor: LoDTensor, begin: int, end: int) -> LoDTensor:
    """Some of the outermost sequences of a tensor."""
    levels = []
    for level in tensor._lod:
        chosen = np.asarray(level[begin : end + 1])
        begin, end = int(chosen[0]), int(chosen[-1])
        levels.append(chosen - begin)
    return LoDTensor.of(np.asarray(tensor.value)[begin:end], tuple(levels))


def merged(name: str, value: Any, target: Replicas, return_numpy: bool) -> Any:
    """A fetched value: the rows of all replicas, one after the other."""
    parts = separate(name, value, target, return_numpy)
    if return_numpy:
        return _concatenated(parts)
    if isinstance(parts[0], SelectedRowsTensor):
        raise RuntimeError(f"fetch {name}: the selected rows of several devices cannot be merged; see return_merged")
    if isinstance(parts[0], list):
        return [_merged_tensors(list(each)) for each in zip(*parts, strict=True)]
    return _merged_tensors(parts)


def separate(name: str, value: Any, target: Replicas, return_numpy: bool) -> list[Any]:
    """A fetched value: a list of what each replica has."""
    read = as_numpy if return_numpy else as_tensor
    parts = value.values if isinstance(value, Copies) else parts_of(value, target)
    return [read(name, part) for part in parts]


def _concatenated(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], list):
        return [_concatenated(each) for each in zip(*parts, strict=True)]
    return np.concatenate([np.atleast_1d(part) for part in parts])


def _merged_tensors(parts: Sequence[LoDTensor]) -> LoDTensor:
    rows = np.concatenate([np.atleast_1d(np.asarray(part.value)) for part in parts])
    levels = []
    for depth in range(len(parts[0]._lod)):
        lengths = np.concatenate([np.diff(part._lod[depth]) for part in parts])
        levels.append(np.concatenate([[0], np.cumsum(lengths)]))
    return LoDTensor.of(rows, tuple(levels))
