"""State as bytes: nested dicts and lists of numbers, texts and arrays, written as JSON and raw tensors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import dense, pb

_ARRAY = "@array"  # the key of a dict that stands for an array


def to_buffers(tree: Any) -> list[Any]:
    """The buffers of a message that holds a tree. Keys of dicts are texts."""
    arrays: list[np.ndarray] = []
    text = json.dumps(_without_arrays(tree, arrays))
    return wire.encode(pb.SavedState(text=text), {str(place): array for place, array in enumerate(arrays)})


def from_bytes(message: bytes) -> Any:
    """The inverse of `to_buffers`; arrays are views into the message."""
    header = wire.decode(pb.SavedState, message)
    return _with_arrays(json.loads(header.text), wire.decode_tensors(header, message))


def _without_arrays(tree: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(tree, np.ndarray):
        arrays.append(tree)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(tree, dict):
        assert all(isinstance(key, str) for key in tree), "JSON turns other keys into texts"
        return {key: _without_arrays(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_without_arrays(value, arrays) for value in tree]
    return tree


def _with_arrays(tree: Any, arrays: dict[str, wire.Value]) -> Any:
    if isinstance(tree, dict):
        if tree.keys() == {_ARRAY}:
            return dense(arrays[str(tree[_ARRAY])])
        return {key: _with_arrays(value, arrays) for key, value in tree.items()}
    return [_with_arrays(value, arrays) for value in tree] if isinstance(tree, list) else tree
