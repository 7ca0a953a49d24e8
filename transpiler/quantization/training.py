"""Training with rounded values, so that a network learns to live with few bits.

An operator reads its inputs quantised and scaled back. Its gradient operator reads the same values and writes the
gradient of the original variable: the gradient passes straight through the rounding, which has none. Only operators of
the global block are rewritten; what loops and branches run stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from refluid.ir import Block, Operator, Program, Variable, VarType
from refluid.ir.roles import OP_NAMESCOPE
from refluid.transpiler.quantization.fake_ops import (
    DEQUANTISED,
    QUANTISED,
    FakeOps,
    Scheme,
    State,
    inputs_of,
    outputs_of,
)

_FLOATS = (VarType.FP16, VarType.BF16, VarType.FP32, VarType.FP64)


@dataclass(frozen=True)
class QuantizeInputs:
    """Quantises what operators multiply: activations and weights, each variable once.

    Attributes:
      types: the operators whose inputs are quantised.
      weights, activations: how; per channel applies to weights of convolutions, others are then quantised as a whole.
      skip: operators in a name scope that contains one of these words are left alone.
      is_test: scales are read, not updated.
    """

    types: Collection[str]
    weights: Scheme
    activations: Scheme
    skip: Collection[str] = ()
    is_test: bool = False

    def apply(self, program: Program) -> tuple[Program, list[State]]:
        """A copy of ``program`` that rounds, and the state that it needs."""
        program = program.clone()
        block = program.global_block()
        fake = FakeOps(block, self.is_test)
        if not self.is_test and "range_abs_max" in (self.weights.kind, self.activations.kind):
            fake.count_steps()

        def rounded(place: int, variable: Variable, op: Operator) -> str:
            scheme = self._scheme(variable, op)
            fake.quantise(place, variable, scheme)
            return fake.dequantise(place + 1, variable, scheme)

        _read_instead(block, self._is_rewritten, self.types, self.skip, rounded)
        return program, list(fake.states.values())

    def _scheme(self, variable: Variable, op: Operator) -> Scheme:
        if not variable.persistable:
            return self.activations
        if self.weights.kind == "channel_wise_abs_max" and "conv2d" not in op.type:
            return Scheme("abs_max", self.weights.bits)
        return self.weights

    def _is_rewritten(self, op: Operator) -> bool:
        return op.type != "matmul" or any(map(_is_weight(op), inputs_of(op)))


@dataclass(frozen=True)
class RoundActivations:
    """Rounds the inputs of operators without weights, such as pooling, to few bits, in their own range."""

    types: Collection[str]
    scheme: Scheme
    skip: Collection[str] = ()
    is_test: bool = False

    def apply(self, program: Program) -> tuple[Program, list[State]]:
        """A copy of ``program`` that rounds, and the state that it needs."""
        program = program.clone()
        block = program.global_block()
        fake = FakeOps(block, self.is_test)

        def rounded(place: int, variable: Variable, op: Operator) -> str:
            return fake.quantise_and_dequantise(place, variable, self.scheme)

        def is_rewritten(op: Operator) -> bool:
            rounded_already = any(name.endswith(QUANTISED + DEQUANTISED) for name in inputs_of(op))
            return not rounded_already and not any(map(_is_weight(op), inputs_of(op)))

        _read_instead(block, is_rewritten, self.types, self.skip, rounded)
        return program, list(fake.states.values())


@dataclass(frozen=True)
class WatchOutputs:
    """Keeps moving averages of the scales of what operators write, in variables named ``<output>@scale``."""

    types: Collection[str]
    rate: float = 0.9
    is_test: bool = False

    def apply(self, program: Program) -> tuple[Program, list[State]]:
        """A copy of ``program`` that keeps scales, and the state that it needs."""
        program = program.clone()
        block = program.global_block()
        fake = FakeOps(block, self.is_test)
        written = [name for op in block.ops if op.type in self.types for name in outputs_of(op)]
        for name in dict.fromkeys(written):
            variable = block.var(name)
            if variable.dtype in _FLOATS:
                fake.watch(variable, self.rate)
        return program, list(fake.states.values())


def _read_instead(
    block: Block,
    is_rewritten: Callable[[Operator], bool],
    types: Collection[str],
    skip: Collection[str],
    rounded: Callable[[int, Variable, Operator], str],
) -> None:
    """Lets operators and their gradients read what ``rounded`` makes of their inputs, once for each variable."""
    instead: dict[str, str] = {}
    gradients = {f"{type}_grad" for type in types}
    for op in list(block.ops):
        if any(word in op.attrs.get(OP_NAMESCOPE, "/") for word in skip):
            continue
        if op.type in types and is_rewritten(op):
            for name in dict.fromkeys(inputs_of(op)):
                variable = block.find_var_recursive(name)
                if variable is None or variable.dtype not in _FLOATS:
                    continue
                if name not in instead:
                    instead[name] = rounded(op.idx, variable, op)
                op.rename_input(name, instead[name])
        elif op.type in gradients:
            slots = op.definition.forward.input_names if op.definition.forward else ()
            for slot in slots:
                op.inputs[slot] = [instead.get(name, name) for name in op.input(slot)]
    block.program.changed()


def _is_weight(op: Operator) -> Callable[[str], bool]:
    def is_weight(name: str) -> bool:
        variable = op.block.find_var_recursive(name)
        return variable is not None and variable.persistable

    return is_weight
