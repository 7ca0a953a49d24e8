"""Single ops on scope variables: ``Operator("scale", X="x", Out="y", scale=2.0).run(scope, place)``."""

from __future__ import annotations

from typing import Any

from refluid.executor import Executor
from refluid.ir import Program
from refluid.ops.core.registry import lookup
from refluid.tensors import LoDTensor

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
            block.create_var(name=name, persistable=True, **_description(scope.find_var(name)))
        block.append_op(type=self.type, inputs=self.inputs, outputs=self.outputs, attrs=self.attrs)
        Executor(place).run(program, scope=scope)


def _description(held: Any) -> dict[str, Any]:
    if held is None or held.value is None:
        return {}
    lod = held.get_tensor().lod() if isinstance(held.holder, LoDTensor) else ()
    return {"shape": held.value.shape, "dtype": held.value.dtype, "lod_level": len(lod)}


def _names(value: Any) -> list[str]:
    return list(value) if isinstance(value, list | tuple) else [value]
