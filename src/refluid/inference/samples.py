"""Random feeds for a program, with matching shapes and dtypes, and ids within the tables they index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refluid.ir import Operator, Program, Variable, as_numpy
from refluid.tensors import LoDTensor

_OPEN_SIZE = 4  # stands for an unknown dim other than the batch
_LONGEST = 5
_SEVERAL = 2  # ids if their number is unknown


def make_samples(
    program: Program,
    names: Sequence[str],
    count: int,
    seed: int = 0,
    known: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """``count`` random samples for some variables: normal floats, ids in range, sequences where they are declared.

    Args:
      known: the ids that some tables have rows of, by the names of the tables: ids for them are drawn from these.
    """
    generator = np.random.default_rng(seed)
    block = program.global_block()
    return {name: _sample(program, block.var(name), count, generator, known or {}) for name in names}


def _sample(
    program: Program, variable: Variable, count: int, generator: np.random.Generator, known: Mapping[str, np.ndarray]
) -> Any:
    lengths: list[list[int]] = []
    for _ in range(variable.lod_level):
        lengths.append(generator.integers(1, _LONGEST + 1, count).tolist())
        count = sum(lengths[-1])
    shape = [_size(dim, i, count) for i, dim in enumerate(variable.shape)]
    if lengths:
        shape[0] = count
    dtype = as_numpy(variable.dtype)
    if dtype.kind in "iu":
        tables = [name for op in lookups_of(program, variable.name) for name in op.input("W") if name in known]
        if tables and len(known[tables[0]]):
            array = generator.choice(known[tables[0]], shape).astype(dtype)
        else:
            array = generator.integers(0, _bound(program, variable.name), shape).astype(dtype)
    elif dtype.kind == "b":
        array = generator.integers(0, 2, shape).astype(dtype)
    else:
        array = generator.standard_normal(shape).astype(dtype)
    if not lengths:
        return array
    tensor = LoDTensor(array)
    tensor.set_recursive_sequence_lengths(lengths)
    return tensor


def lookups_of(program: Program, ids: str) -> list[Operator]:
    """The operators that look up rows of the ids in a variable."""
    ops = program.global_block().ops
    return [op for op in ops if op.type in ("lookup_table", "lookup_table_v2") and ids in op.input("Ids")]


def _size(dim: int, position: int, count: int) -> int:
    if dim >= 0:
        return dim
    return count if position == 0 else _OPEN_SIZE


def _bound(program: Program, name: str) -> int:
    """How many different ids a variable may hold: the smallest table or depth it reaches through integer values."""
    block, reached, bounds = program.global_block(), {name}, [np.inf]
    for op in block.ops:
        slots = [slot for slot, names in op.inputs.items() if reached.intersection(names)]
        if not slots:
            continue
        if op.type.startswith("lookup_table") and "Ids" in slots:
            bounds.append(block.var(op.input("W")[0]).shape[0])
        elif op.type.startswith("one_hot"):
            bounds.append(op.attrs.get("depth", _SEVERAL))
        elif "Label" in slots:
            values = (op.inputs.get("X") or op.inputs.get("Logits") or op.inputs.get("Out") or [None])[0]
            if values is not None and block.has_var(values):
                bounds.append(max(1, block.var(values).shape[-1]))
        integers = [n for n in op.output_arg_names if block.has_var(n) and as_numpy(block.var(n).dtype).kind in "iu"]
        reached.update(integers)
    return _SEVERAL if min(bounds) == np.inf else int(min(bounds))
