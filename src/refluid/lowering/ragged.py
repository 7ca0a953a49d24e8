"""Ragged values in rules that are unaware of sequences, and the padding that limits the number of compilations.

A rule with lod="share" sees rows. Its outputs become sequences again if they have as many rows as its sequence inputs.
Gradients become sequences like the variables they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from refluid.ir.operator import Operator
from refluid.ops.core.gradients import derive_gradient_op
from refluid.ops.core.registry import GRAD_SUFFIX, OpDef
from refluid.ops.core.values import Ragged, SelectedRows, plain
from refluid.ops.sequence import nested

Arguments = dict[str, list[Any]]


class PaddingError(Exception):
    """An op that mixes rows received padded rows; the step must run without padding.

    ``misfit``: the op failed, possibly because its other inputs are not padded. If they have as many rows as the
    sequences, every new length changes their shape too, and padding gains nothing.
    """

    def __init__(self, op: Operator, misfit: bool = False):
        self.op, self.misfit = op, misfit
        self.loop: Operator | None = None  # the innermost loop around it, which must run on the host
        super().__init__(f"{op.type} mixes rows ({op.written_at})")

    def within(self, loop: Operator) -> PaddingError:
        """Marks the error as raised while ``loop`` was being compiled, and returns it."""
        self.loop = self.loop or loop
        return self


def has_ragged(arguments: Arguments) -> bool:
    """Whether any argument holds sequences."""
    return any(isinstance(value, Ragged) for values in arguments.values() for value in values)


def rows_of(arguments: Arguments) -> Arguments:
    """Returns the arguments with plain rows instead of sequences."""
    return {slot: [plain(value) for value in values] for slot, values in arguments.items()}


def as_sequences(definition: OpDef, arguments: Arguments, outputs: Arguments) -> Arguments:
    """Gives outputs with as many rows as a sequence input the offsets of that input."""
    if definition.lod == "aware" and definition.forward is None:
        return outputs
    found = [v for slot in definition.input_names for v in arguments.get(slot, ()) if isinstance(v, Ragged)]
    first = next((value for value in found if value.levels), found[0])
    lead = next((v for slot in definition.input_names for v in arguments.get(slot, ())), first)
    no_sequences = isinstance(lead, jax.Array | np.ndarray) or (isinstance(lead, Ragged) and not lead.levels)
    if no_sequences and lead.shape[:1] == first.shape[:1]:
        first = first.as_rows(first.data)  # Fluid looks at the first input only
    return {
        slot: [_wrapped(value, _model(slot, i, definition, arguments, first)) for i, value in enumerate(values)]
        for slot, values in outputs.items()
    }


def _model(slot: str, index: int, definition: OpDef, arguments: Arguments, first: Ragged) -> Ragged | None:
    if slot.endswith(GRAD_SUFFIX) and slot.removesuffix(GRAD_SUFFIX) in arguments:
        belongs_to = arguments[slot.removesuffix(GRAD_SUFFIX)]
        value = belongs_to[index] if index < len(belongs_to) else None
        return value if isinstance(value, Ragged) else None
    if slot.endswith(GRAD_SUFFIX) or definition.lod == "share":
        return first
    return first.as_rows(first.data)  # Fluid gives these outputs no LoD, but their rows are padded all the same


def _wrapped(value: Any, model: Ragged | None) -> Any:
    if model is None or value is None or isinstance(value, Ragged | SelectedRows):
        return value
    return model.with_data(value) if value.ndim and value.shape[0] == model.shape[0] else value


def without_padding(arguments: Arguments) -> Arguments:
    """Returns the arguments with only the real rows of sequences; outside compiled pieces only."""
    return {
        slot: [value.data[: int(value.rows)] if isinstance(value, Ragged) else value for value in values]
        for slot, values in arguments.items()
    }


def with_padding(definition: OpDef, arguments: Arguments, outputs: Arguments) -> Arguments:
    """Undoes `without_padding` for outputs: those with as many rows as the first sequence are padded like it."""
    model = next(v for values in arguments.values() for v in values if isinstance(v, Ragged))
    rows, missing = int(model.rows), model.shape[0] - int(model.rows)

    def padded(value: Any) -> Any:
        if not isinstance(value, jax.Array | np.ndarray) or not value.ndim or value.shape[0] != rows:
            return value
        value = jnp.pad(value, [(0, missing)] + [(0, 0)] * (value.ndim - 1))
        return value if definition.lod == "share" else model.as_rows(value)

    outputs = {slot: [padded(value) for value in values] for slot, values in outputs.items()}
    return as_sequences(definition, arguments, outputs)


def with_padded_gradients(arguments: Arguments, op: Operator) -> Arguments:
    """Returns the arguments with zeros in the padded rows of incoming gradients, as gradient ops leave them.

    Gradients from elsewhere need it: what a user fed or computed has other values in those rows, or lacks them.
    """
    return {
        slot: _with_zeros(op.inputs[slot], values, arguments.get(slot.removesuffix(GRAD_SUFFIX), ()))
        if slot.endswith(GRAD_SUFFIX)
        else values
        for slot, values in arguments.items()
    }


def _with_zeros(names: list[str], values: list[Any], models: Sequence[Any]) -> list[Any]:
    models = models or [None] * len(values)
    return [
        _padded_with_zeros(value, model) if GRAD_SUFFIX not in name else value
        for name, value, model in zip(names, values, models, strict=True)
    ]


def _padded_with_zeros(value: Any, model: Any) -> Any:
    if isinstance(value, Ragged):
        return value.with_data(value.masked())
    if not isinstance(model, Ragged) or value is None or value.ndim != model.ndim:
        return value
    missing = model.shape[0] - value.shape[0]
    return model.with_data(jnp.pad(value, [(0, missing)] + [(0, 0)] * (value.ndim - 1))) if missing > 0 else value


def without_room(definition: OpDef) -> OpDef:
    """The op for rows that must not be padding: its rule, and so its gradient, with padding cut off the results."""
    if definition.forward is not None:
        return derive_gradient_op(without_room(definition.forward))

    def rule(*values: Any, **attrs: Any) -> Any:
        found = definition.rule(*values, **attrs)
        return tuple(map(_cut, found)) if isinstance(found, tuple) else _cut(found)

    return replace(definition, rule=rule)


def _cut(found: Any) -> Any:
    if isinstance(found, list):
        return [_cut(each) for each in found]
    if isinstance(found, Ragged) and not nested.is_known(*found.offsets):
        raise ValueError(
            "how many rows there are depends on values, and sequences of this program must not be padded, so the op "
            "cannot be compiled; declare inputs that hold sequences with their lod_level, and leave StaticRNN"
        )
    return nested.without_padding(found)


def masked_seed(op: Operator, outputs: Arguments) -> Arguments:
    """Zeros the padded rows of the ones that gradients of sequences start from."""
    if not op.definition.constant or not any(GRAD_SUFFIX in name for name in op.output_arg_names):
        return outputs
    return {
        slot: [value.with_data(value.masked()) if isinstance(value, Ragged) else value for value in values]
        for slot, values in outputs.items()
    }
