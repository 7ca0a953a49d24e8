"""What is in a model, as text."""

from __future__ import annotations

import math
from collections import Counter

from refluid.files.variables import feeds_and_fetches, is_persistable
from refluid.ir import Program, Variable, as_numpy
from refluid.tables import as_text, table


def describe(program: Program) -> str:
    """Feeds, fetches, operators and parameters of an inference program."""
    block = program.global_block()
    feeds, fetches = feeds_and_fetches(program)
    parameters = sorted(filter(is_persistable, program.list_vars()), key=lambda variable: variable.name)
    counts = Counter(op.type for b in program.blocks for op in b.ops if op.type not in ("feed", "fetch"))
    sizes = [math.prod(v.shape) for v in parameters]
    bytes_ = [size * as_numpy(v.dtype).itemsize for v, size in zip(parameters, sizes, strict=True)]
    rows = [
        (v.name, as_numpy(v.dtype).name, str(list(v.shape)), f"{size:,}", f"{held:,}")
        for v, size, held in zip(parameters, sizes, bytes_, strict=True)
    ]
    return "\n".join(
        [
            *(f"feed     {_shown(block.var(name))}" for name in feeds),
            *(f"fetch    {_shown(block.var(name))}" for name in fetches),
            "",
            as_text(table(("op", "count"), [(kind, str(count)) for kind, count in counts.most_common()])),
            f"{sum(counts.values())} ops in {_counted(len(program.blocks), 'block')}",
            "",
            as_text(table(("parameter", "dtype", "shape", "elements", "bytes"), rows)),
            f"{_counted(len(parameters), 'parameter')}, {sum(sizes):,} elements, {sum(bytes_):,} bytes",
        ]
    )


def list_operators(program: Program) -> str:
    """Every operator with its variables, in order."""
    lines = []
    for block in program.blocks:
        lines += [f"block {block.idx}"] if len(program.blocks) > 1 else []
        for op in block.ops:
            inputs = ", ".join(name for name in op.input_arg_names)
            outputs = ", ".join(name for name in op.output_arg_names)
            lines.append(f"{op.type:<24} {inputs} -> {outputs}")
    return "\n".join(lines)


def _shown(variable: Variable) -> str:
    sequences = f", sequences of {variable.lod_level} level(s)" if variable.lod_level else ""
    return f"{variable.name}  {as_numpy(variable.dtype).name}{list(variable.shape)}{sequences}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
