"""Ops that leave padding behind the rows they return say so, because where rows must not be padded it has to be cut."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import refluid.ops  # noqa: F401 - registers every op
from golden.case import Case, Lod
from refluid.ops.core import registry
from refluid.ops.core.values import Ragged

FAMILIES = ("sequence_pieces", "sequence", "retrieval", "corners")


def cases_on_sequences() -> list[Case]:
    """The first case of each op that handles padding by itself, with each set of inputs; recurrences keep all rows."""
    chosen: dict[tuple[str, ...], Case] = {}
    for family in FAMILIES:
        for case in importlib.import_module(f"golden.cases.{family}").CASES:
            if isinstance(case, Case) and _is_called_with_sequences(case):
                chosen.setdefault((case.op, *sorted(case.inputs)), case)
    return list(chosen.values())


def _is_called_with_sequences(case: Case) -> bool:
    definition = registry.lookup(case.op)
    given = [value for values in case.inputs.values() for value in (values if isinstance(values, list) else [values])]
    plain = definition.host is not True and not definition.loops and not definition.services - {"key"}
    return definition.lod == "aware" and plain and all(isinstance(value, Lod | np.ndarray) for value in given)


def as_input(value: Any) -> Any:
    if isinstance(value, list):
        return [as_input(each) for each in value]
    if not isinstance(value, Lod):
        return jnp.asarray(value)
    offsets = tuple(jnp.asarray(np.cumsum([0, *lengths]), jnp.int32) for lengths in value.lengths)
    return Ragged(jnp.asarray(value.array), offsets, max(value.lengths[-1]))


def has_padding(value: Ragged) -> bool:
    rooms = [level.shape[0] - 1 for level in value.offsets[1:]] + [value.shape[0]]
    return any(int(level[-1]) != room for level, room in zip(value.offsets, rooms, strict=True))


def test_an_op_that_leaves_padding_behind_its_rows_finds_rows():
    silent = set()
    with jax.enable_x64(True):
        for case in cases_on_sequences():
            definition = registry.lookup(case.op)
            arguments = {slot: as_input(v if isinstance(v, list) else [v]) for slot, v in case.inputs.items()}
            services = {"key": jax.random.key(0)} if definition.random else {}
            outputs = jax.tree.leaves(
                definition.call(arguments, case.attrs, **services), is_leaf=lambda value: isinstance(value, Ragged)
            )
            padded = any(isinstance(value, Ragged) and has_padding(value) for value in outputs)
            if padded and not definition.may_find_rows(arguments):
                silent.add(case.op)
    assert not silent
