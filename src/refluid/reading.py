"""Reading: the readers of a program and the batches that its `read` operators take from them.

Both happen before a step. Operators that make readers run first, unless the scope has their readers already; then each
`read` operator takes a batch, which is fed to the step. Compiled steps do not know of readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

from refluid import (
    preprocessing,  # noqa: F401 - registers its reader
    profiling,
)
from refluid.errors import EOFException
from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.program import Program
from refluid.lowering.lowered import lowered
from refluid.ops.core.registry import handles_readers
from refluid.readers import decorators, queued, recordio_files  # noqa: F401 - register their readers
from refluid.readers.making import make
from refluid.readers.reader import Reader
from refluid.scope import Scope


@dataclass(frozen=True)
class Reading:
    """The operators of one version of a program that make readers or read from them."""

    version: int
    makers: tuple[Operator, ...]
    reads: tuple[Operator, ...]

    def prepare(self, scope: Scope) -> None:
        """Puts the readers that the program makes into a scope."""
        for op in self.makers:
            _make(op, scope)

    def missing(self, feed: Any) -> list[Operator]:
        """The operators that must read, because not all their variables are fed."""
        if not self.reads:
            return []
        fed = feed[0] if isinstance(feed, list | tuple) and feed else feed
        return [op for op in self.reads if not fed or any(name not in fed for name in op.output("Out"))]


def reading_of(program: Program) -> Reading:
    """The operators of ``program`` that make readers or read."""
    kept = program.lowered or lowered(program)
    found = kept.reading
    if found is None or found.version != program._version:
        found = kept.reading = _reading(program)
    return found


def take_batches(ops: Sequence[Operator], scope: Scope) -> dict[str, Any]:
    """Takes the next batch of each `read` operator; raises EOFException at the end of a pass."""
    feed: dict[str, Any] = {}
    for op in ops:
        (name,), names = op.input("Reader"), op.output("Out")
        reader = _reader_in(scope, name, op)
        with profiling.record("read batch"):
            batch = reader.next()
        if batch is None:
            raise EOFException(
                f"There is no next data: the pass of reader {name} has ended; "
                "call its reset() and start() for another one"
            )
        if len(batch) != len(names):
            raise op.error(f"reader {name} yields {len(batch)} values, but {len(names)} variables are read: {names}")
        feed.update(zip(names, batch, strict=True))
    return feed


def peek_batches(ops: Sequence[Operator], scope: Scope) -> dict[str, Any] | None:
    """What `take_batches` will return next, as far as readers know it already; None if they do not."""
    feed: dict[str, Any] = {}
    for op in ops:
        batch = _reader_in(scope, op.input("Reader")[0], op).peek()
        feed.update(zip(op.output("Out"), batch or (), strict=False))
    return feed or None


def _reading(program: Program) -> Reading:
    ops = program.global_block().ops
    for block in program.blocks[1:]:
        for op in block.ops:
            if op.type == "read":
                raise op.error("it is inside of a loop or a branch; programs read in their global block only")
    makers = [op for op in ops if op.type != "read" and handles_readers(op.type)]
    return Reading(program._version, tuple(makers), tuple(op for op in ops if op.type == "read"))


def _make(op: Operator, scope: Scope) -> None:
    """Makes the reader of one operator, unless the scope holds one of the same operator and inputs."""
    (name,) = op.output("Out")
    inputs = [_input(scope, each, op) for each in op.input_arg_names]
    attrs = op.definition.known_attrs(op.attrs)
    variable = scope.var(name)
    # The reader keeps its inputs alive. A clone of the program has the same blocks under the same numbers.
    origin = op.type, {n: v.idx if isinstance(v, Block) else v for n, v in attrs.items()}, [id(v) for v in inputs]
    if isinstance(variable.holder, Reader) and variable.holder.origin == origin:
        return
    reader = make(op.type, inputs, attrs)
    reader.name, reader.origin, reader.scope, reader.seed = name, origin, ref(scope), op.block.program.random_seed
    variable.holder = reader


def _input(scope: Scope, name: str, op: Operator) -> Any:
    found = scope.find_var(name)
    if found is not None and found.holder is not None:
        return found.holder
    if op.type == "create_py_reader":
        raise op.error(
            f"the queue {name} is not in this scope",
            hint="py_reader puts it into the global scope: build and run the program in the same process, "
            "under the same fluid.scope_guard",
        )
    raise op.error(f"reader {name} is not in this scope", hint="run the startup program first")


def _reader_in(scope: Scope, name: str, op: Operator) -> Reader:
    found = scope.find_var(name)
    if found is None or not isinstance(found.holder, Reader):
        raise op.error(f"reader {name} is not in this scope", hint="run the startup program first")
    return found.holder
