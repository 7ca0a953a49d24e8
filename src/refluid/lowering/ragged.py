"""Sequences on their way through rules that know nothing of them, and the padding that keeps compilations few.

A rule with lod="share" sees rows. Its outputs become sequences again if they have as many rows as the sequences that
came in. Gradients become sequences like the variables they belong to.
"""

from __future__ import annotations

from typing import Any

from refluid.ir.operator import Operator
from refluid.ops.registry import GRAD_SUFFIX, OpDef
from refluid.ops.values import Ragged, plain

Arguments = dict[str, list[Any]]


class PaddingError(Exception):
    """An op that mixes rows met rows of padding; the step must run without padding."""

    def __init__(self, op: Operator):
        self.op = op
        super().__init__(f"{op.type} mixes rows ({op.written_at})")


def has_ragged(arguments: Arguments) -> bool:
    """Whether sequences come in."""
    return any(isinstance(value, Ragged) for values in arguments.values() for value in values)


def rows_of(arguments: Arguments) -> Arguments:
    """The arguments with plain rows instead of sequences."""
    return {slot: [plain(value) for value in values] for slot, values in arguments.items()}


def as_sequences(definition: OpDef, arguments: Arguments, outputs: Arguments) -> Arguments:
    """Gives outputs that are still cut like an input that input's offsets."""
    first = next((v for slot in definition.input_names for v in arguments.get(slot, ()) if isinstance(v, Ragged)), None)
    return {
        slot: [
            _wrapped(value, _model(slot, i, arguments, first if definition.lod == "share" else None))
            for i, value in enumerate(values)
        ]
        for slot, values in outputs.items()
    }


def _model(slot: str, index: int, arguments: Arguments, first: Ragged | None) -> Ragged | None:
    if not slot.endswith(GRAD_SUFFIX):
        return first
    belongs_to = arguments.get(slot.removesuffix(GRAD_SUFFIX), ())
    value = belongs_to[index] if index < len(belongs_to) else None
    return value if isinstance(value, Ragged) else None


def _wrapped(value: Any, model: Ragged | None) -> Any:
    fits = model is not None and getattr(value, "ndim", 0) > 0 and value.shape[0] == model.shape[0]
    if fits and not isinstance(value, Ragged):
        return model.with_data(value)  # pyright: ignore[reportOptionalMemberAccess]
    return value
