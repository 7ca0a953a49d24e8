"""Shapes and dtypes of an op's outputs, by abstract evaluation of its rule.

A dim of -1 is unknown until a batch is fed. The rule is evaluated twice, with two different stand-in sizes for every
unknown dim; where the two results differ, the output dim depends on the unknown and is -1 again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from refluid import backend
from refluid.ops.core.registry import OpDef, lookup
from refluid.ops.core.values import Ragged, SelectedRows


class ShapeDtype(NamedTuple):
    """A variable's static description; dims are -1 where they are not known."""

    shape: tuple[int, ...]
    dtype: np.dtype
    rows: bool = False  # a SelectedRows of that shape rather than an array
    lod_level: int = 0  # number of LoD levels


Described = dict[str, list[ShapeDtype]]


def levels_of(value: Any) -> int:
    """How many LoD levels a value, or the variable that is described, has."""
    return value.lod_level if isinstance(value, ShapeDtype) else getattr(value, "levels", 0)


Infer = Callable[[Described, dict[str, Any]], Described]


def described_elsewhere(inputs: Described, attrs: dict[str, Any]) -> Described:
    """Inference for ops whose outputs are described by the code that appends them."""
    return {}


def described_like(slot: str, change: Callable[[ShapeDtype], ShapeDtype] = lambda x: x, out: str = "Out") -> Infer:
    """Inference for an output that is described like the input in ``slot``, modified by ``change``."""
    return lambda inputs, attrs: {out: [change(value) for value in inputs[slot][:1]]}


# Large, so that no kernel is wider than the stand-in; rich in divisors, so that splits and folds work.
_STAND_INS = (10080, 20160)
_ROWS = 7  # how many rows a SelectedRows stand-in holds; no output shape depends on it


def infer_outputs(definition: OpDef, inputs: Described, attrs: dict[str, Any]) -> Described | None:
    """The outputs' shapes and dtypes, or None where they depend on values.

    Raises the rule's own error if the inputs do not fit it.
    """
    if definition.infer is not None:
        return definition.infer(inputs, attrs)
    if definition.host or any(slot in inputs for slot in definition.static):
        return None
    if any(isinstance(value, np.ndarray) for value in attrs.values()):
        return _evaluate(definition, inputs, attrs, 1)
    frozen_inputs = tuple((slot, tuple(values)) for slot, values in inputs.items())
    frozen_attrs = tuple((name, freeze(value)) for name, value in definition.known_attrs(attrs).items())
    return dict(_infer(definition.type, frozen_inputs, frozen_attrs))


def freeze(value: Any) -> Any:
    """``value`` with lists made tuples, so that it can be a dictionary key."""
    return tuple(map(freeze, value)) if isinstance(value, list | tuple) else value


@lru_cache(maxsize=65536)
def _infer(type: str, inputs: tuple, attrs: tuple):
    definition, described, known = lookup(type), {slot: list(values) for slot, values in inputs}, dict(attrs)
    try:
        return _evaluate_twice(definition, described, known)
    except Exception as first:  # noqa: BLE001 - rules may raise anything
        return _infer_with_known_sizes(definition, described, known, first)


def _evaluate_twice(definition: OpDef, inputs: Described, attrs: dict[str, Any]) -> Described:
    if all(-1 not in value.shape and not value.lod_level for values in inputs.values() for value in values):
        return _evaluate(definition, inputs, attrs, 1)
    small, large = (_evaluate(definition, inputs, attrs, size) for size in _STAND_INS)
    return {slot: [_common(a, b) for a, b in zip(small[slot], large[slot], strict=True)] for slot in small}


def _infer_with_known_sizes(definition: OpDef, inputs: Described, attrs: dict[str, Any], first: Exception):
    """Tries each known size for one of the unknown dims, which may have to be equal, and then for all of them.

    Raises ``first`` if none works.
    """
    sizes = sorted({d for values in inputs.values() for v in values for d in v.shape if d > 0}, reverse=True)
    attempts = [partial(_evaluate_twice, definition, one, attrs) for one in _with_one_known(inputs, sizes)]
    for attempt in attempts + [partial(_evaluate, definition, inputs, attrs, size) for size in sizes]:
        try:
            return attempt()
        except Exception:  # noqa: BLE001 - the first failure is the one to report
            continue
    raise first


def _with_one_known(inputs: Described, sizes: Sequence[int]) -> list[Described]:
    """``inputs`` with a known size for one of several unknown dims, in all ways."""
    places = [
        (slot, i, axis)
        for slot, values in inputs.items()
        for i, value in enumerate(values)
        for axis, dim in enumerate(value.shape)
        if dim == -1
    ]
    return [_with_dim(inputs, *place, size) for place in places for size in sizes] if len(places) > 1 else []


def _with_dim(inputs: Described, slot: str, index: int, axis: int, size: int) -> Described:
    values = list(inputs[slot])
    shape = values[index].shape
    values[index] = values[index]._replace(shape=(*shape[:axis], size, *shape[axis + 1 :]))
    return {**inputs, slot: values}


def _evaluate(definition: OpDef, inputs: Described, attrs: dict[str, Any], stand_in: int) -> Described:
    backend.prepare()  # a rule may query the platform
    aware = definition.lod == "aware"
    arguments = {slot: [_stand_in(value, stand_in, aware) for value in values] for slot, values in inputs.items()}
    services = {"key": jax.random.key(0)} if definition.random else {}
    with jax.enable_x64(True):
        outputs = jax.eval_shape(lambda values: definition.call(values, attrs, **services), arguments)
    return {slot: [_described(v) for v in values] for slot, values in outputs.items()}


def _described(value: Any) -> ShapeDtype:
    levels = value.levels if isinstance(value, Ragged) else 0
    return ShapeDtype(tuple(value.shape), np.dtype(value.dtype), isinstance(value, SelectedRows), levels)


def _stand_in(value: ShapeDtype, size: int, aware: bool) -> Any:
    shape = tuple(size if dim == -1 else dim for dim in value.shape)
    if value.lod_level and aware:
        # Rows, sequences and lengths are all unknown, and all different.
        levels = range(1, value.lod_level + 1)
        offsets = tuple(jax.ShapeDtypeStruct((size // 2 ** (value.lod_level - i + 1) + 1,), np.int32) for i in levels)
        return Ragged(jax.ShapeDtypeStruct(shape, value.dtype), offsets, size // 16)
    if not value.rows:
        return jax.ShapeDtypeStruct(shape, value.dtype)
    return SelectedRows(
        jax.ShapeDtypeStruct((_ROWS,), np.int64), jax.ShapeDtypeStruct((_ROWS, *shape[1:]), value.dtype), shape[0]
    )


def _common(a: ShapeDtype, b: ShapeDtype) -> ShapeDtype:
    return a._replace(shape=tuple(m if m == n else -1 for m, n in zip(a.shape, b.shape, strict=True)))
