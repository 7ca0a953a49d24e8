"""The reader of `layers.Preprocessor`: runs a block of a program on every batch that another reader reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refluid.ir.block import Block
from refluid.ir.program import Program
from refluid.readers.generators import Batches, WrappingGenerated
from refluid.readers.making import makes
from refluid.readers.reader import Batch, Reader


@makes("create_custom_reader")
class CustomReader(WrappingGenerated):
    """Compiles the block as a program of its own and runs it on the CPU, in the thread that asks for a batch.

    Args:
      source_var_names: the variables of the block that get the values of a batch.
      sink_var_names: the variables of the block that make up the new batch.
    """

    def __init__(
        self, wrapped: Reader, sub_block: Block, source_var_names: Sequence[str], sink_var_names: Sequence[str]
    ):
        from refluid.executor import Executor  # the executor makes readers

        super().__init__(wrapped)
        self._sources, self._sinks = list(source_var_names), list(sink_var_names)
        self._program = _as_program(sub_block, self._sources)
        self._executor = Executor()

    def batches(self) -> Batches:
        for batch in self.below():
            yield self._run(batch)

    def _run(self, batch: Batch) -> list[Any]:
        scope = self.scope()
        if scope is None:
            raise RuntimeError(f"{self.name}: the scope that it was made for is gone")
        feed = dict(zip(self._sources, batch, strict=True))
        tensors = self._executor.run(self._program, feed, self._sinks, scope=scope, return_numpy=False)
        return [tensor if tensor.lod() else np.asarray(tensor.value) for tensor in tensors]


def _as_program(block: Block, sources: Sequence[str]) -> Program:
    """A program whose global block is ``block``, with the variables of the blocks around it."""
    program = block.program.clone()
    outer, inner = program.global_block(), program.block(block.idx)
    for variable in inner.vars.values():
        variable.copy_to(outer)
    outer.ops = [op.copy_to(outer) for op in inner.ops]
    for name in sources:
        outer.var(name).is_data = True
    program.changed()
    return program
