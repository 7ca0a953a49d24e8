"""Single ops on scope variables: ``Operator("scale", X="x", Out="y", scale=2.0).run(scope, place)``."""

from __future__ import annotations

from typing import Any

from refluid.executor import Executor
from refluid.ir import Program
from refluid.ops.core.registry import lookup

__all__ = ["Operator"]


class Operator:
    """One op whose slots name variables of the scope it runs in."""

    def __init__(self, type: str, **arguments: Any):
        definition = lookup(type)
        self.type = type
        self.inputs = {s: _names(arguments[s]) for s in definition.input_names if s in arguments}
        self.outputs = {s: _names(arguments[s]) for s in definition.output_names if s in arguments}
        self.attrs = {n: v for n, v in arguments.items() if n not in self.inputs and n not in self.outputs}

    def run(self, scope: Any, place: Any) -> None:
        """Reads the inputs from ``scope``, runs the op and writes the outputs back."""
        program = Program()
        block = program.global_block()
        for name in {n for names in (*self.inputs.values(), *self.outputs.values()) for n in names}:
            held = scope.find_var(name)
            value = None if held is None else held.value
            described = {} if value is None else {"shape": value.shape, "dtype": value.dtype}
            block.create_var(name=name, persistable=True, **described)
        block.append_op(type=self.type, inputs=self.inputs, outputs=self.outputs, attrs=self.attrs)
        Executor(place).run(program, scope=scope)


def _names(value: Any) -> list[str]:
    return list(value) if isinstance(value, list | tuple) else [value]
