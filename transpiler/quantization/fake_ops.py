"""Operators that round tensors to few bits, and the state that they keep in the scope."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from refluid.ir import Block, Operator, OpRole, Variable, unique_name
from refluid.ir.overwritten import connect_overwritten

Kind = Literal["abs_max", "range_abs_max", "moving_average_abs_max", "channel_wise_abs_max"]
STEP = "@STEP_COUNTER@"
QUANTISED, DEQUANTISED, BOTH, SCALE = ".quantized", ".dequantized", ".quant_dequant", ".scale"
# What there is before the first batch.
_FIRST_SCALE = 0.001

# The tensors of an op that can be quantised: input slots and output slots. Others, such as shapes, are left alone.
TENSORS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(("conv2d", "depthwise_conv2d"), (("Input", "Filter"), ("Output",))),
    **dict.fromkeys(
        "mul matmul elementwise_add elementwise_sub elementwise_mul equal not_equal greater_equal greater_than "
        "less_equal less_than".split(),
        (("X", "Y"), ("Out",)),
    ),
    **dict.fromkeys(
        "pool2d concat softmax argmax transpose transpose2 reshape reshape2 squeeze gather mean scale dropout "
        "bilinear_interp nearest_interp trilinear_interp relu relu6 leaky_relu prelu tanh sigmoid swish".split(),
        (("X",), ("Out",)),
    ),
    "slice": (("Input",), ("Out",)),
    "batch_norm": (("X",), ("Y",)),
}


@dataclass(frozen=True)
class State:
    """A variable that keeps a scale from batch to batch, and the value that it starts with."""

    name: str
    shape: tuple[int, ...]
    value: float
    dtype: str = "float32"


@dataclass(frozen=True)
class Scheme:
    """How tensors are quantised.

    Attributes:
      kind: where the scale comes from.
      bits: how many bits an element has.
      window: over how many batches range_abs_max looks back.
      rate: how slowly moving averages move.
    """

    kind: Kind
    bits: int = 8
    window: int = 10000
    rate: float = 0.9

    @property
    def levels(self) -> int:
        """The largest integer of so many bits."""
        return 2 ** (self.bits - 1) - 1


def inputs_of(op: Operator) -> list[str]:
    """The tensors that ``op`` reads, in Fluid's order of slots."""
    slots = TENSORS[op.type][0]
    return [name for slot in sorted(slots) for name in op.input(slot)]


def outputs_of(op: Operator) -> list[str]:
    """The tensors that ``op`` writes."""
    return [name for slot in TENSORS[op.type][1] for name in op.output(slot)]


@dataclass
class FakeOps:
    """Inserts fake_quantize and fake_dequantize operators into a block, and collects their state."""

    block: Block
    is_test: bool
    states: dict[str, State] = field(default_factory=dict)

    def quantise(self, place: int, source: Variable, scheme: Scheme) -> str:
        """Inserts an operator that quantises ``source``; returns the name of its result."""
        quantised = self._like(source, source.name + QUANTISED)
        if scheme.kind in ("abs_max", "channel_wise_abs_max"):
            by_channel = scheme.kind == "channel_wise_abs_max"
            scale = self.block.create_var(
                name=source.name + SCALE, shape=[source.shape[0] if by_channel else 1], dtype=source.dtype
            )
            inputs, outputs, attrs = {}, {"OutScale": scale}, {"bit_length": scheme.bits}
            type = "fake_channel_wise_quantize_abs_max" if by_channel else "fake_quantize_abs_max"
        else:
            inputs, outputs, attrs = self._kept_scale(source.name + SCALE, scheme)
            type = f"fake_quantize_{scheme.kind}"
        self._insert(place, type, {"X": source, **inputs}, {"Out": quantised, **outputs}, attrs)
        if self.block.ops[place].definition.overwrites is not None:
            connect_overwritten(self.block.program)
        return quantised.name

    def dequantise(self, place: int, source: Variable, scheme: Scheme) -> str:
        """Inserts an operator that scales what `quantise` made of ``source`` back; returns the name of its result."""
        result = self._like(source, source.name + QUANTISED + DEQUANTISED)
        quantised, scale = source.name + QUANTISED, source.name + SCALE
        if scheme.kind == "channel_wise_abs_max":
            type, scales = "fake_channel_wise_dequantize_max_abs", "Scales"
            attrs: dict[str, Any] = {"quant_bits": [scheme.bits]}
        else:
            type, scales = "fake_dequantize_max_abs", "Scale"
            attrs = {"max_range": float(scheme.levels)}
        self._insert(place, type, {"X": quantised, scales: scale}, {"Out": result}, attrs)
        return result.name

    def quantise_and_dequantise(self, place: int, source: Variable, scheme: Scheme) -> str:
        """Inserts an operator that rounds ``source`` but keeps its range; returns the name of its result."""
        result = self._like(source, source.name + BOTH)
        inputs, outputs, attrs = self._kept_scale(source.name + BOTH + SCALE, scheme, "quant_dequant.")
        type = f"fake_quantize_dequantize_{scheme.kind}"
        self._insert(place, type, {"X": source, **inputs}, {"Out": result, **outputs}, attrs)
        return result.name

    def watch(self, source: Variable, rate: float) -> None:
        """Appends an operator that keeps a moving average of the scale of ``source``."""
        inputs, outputs = {}, {"OutScale": self._state(f"{source.name}@scale", (1,), 1.0)}
        if not self.is_test:
            inputs, states = self._average("scale_", "@")
            outputs.update(states)
        attrs = {"moving_rate": rate, "is_test": self.is_test}
        place = len(self.block.ops)
        self._insert(place, "moving_average_abs_max_scale", {"X": source, **inputs}, {"Out": source, **outputs}, attrs)

    def count_steps(self) -> None:
        """Inserts an operator that counts the batches, which range_abs_max needs."""
        step = self._state(STEP, (1,), 0, "int64")
        self._insert(0, "increment", {"X": step}, {"Out": step}, {"step": 1.0})

    def _kept_scale(self, name: str, scheme: Scheme, prefix: str = "") -> tuple[dict[str, Any], ...]:
        """Inputs, outputs and attributes of an operator whose scale outlives a batch."""
        scale = self._state(name, (1,), _FIRST_SCALE)
        inputs, outputs = {"InScale": scale}, {"OutScale": scale}
        attrs: dict[str, Any] = {"bit_length": scheme.bits, "is_test": self.is_test}
        if scheme.kind == "range_abs_max":
            attrs["window_size"] = scheme.window
            if not self.is_test:
                inputs["Iter"] = self.block.var(STEP)
                outputs["OutScales"] = self._state(unique_name.generate("scales"), (scheme.window,), 0.0)
            return inputs, outputs, attrs
        attrs["moving_rate"] = scheme.rate
        if not self.is_test:
            more, states = self._average(prefix)
            inputs.update(more)
            outputs.update(states)
        return inputs, outputs, attrs

    def _average(self, prefix: str, suffix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
        state, accumulated = (
            self._state(unique_name.generate(f"{prefix}{word}{suffix}"), (1,), 1.0) for word in ("state", "accum")
        )
        return {"InState": state, "InAccum": accumulated}, {"OutState": state, "OutAccum": accumulated}

    def _state(self, name: str, shape: tuple[int, ...], value: float, dtype: str = "float32") -> Variable:
        self.states.setdefault(name, State(name, shape, value, dtype))
        return self.block.create_var(name=name, shape=shape, dtype=dtype, persistable=True, stop_gradient=True)

    def _like(self, source: Variable, name: str) -> Variable:
        return self.block.create_var(
            name=name, type=source.type, shape=source.shape, dtype=source.dtype, lod_level=source.lod_level
        )

    def _insert(self, place: int, type: str, inputs: Any, outputs: Any, attrs: dict[str, Any]) -> None:
        attrs = {**attrs, "op_role": int(OpRole.Forward)}
        self.block.insert_op(place, type=type, inputs=inputs, outputs=outputs, attrs=attrs)
