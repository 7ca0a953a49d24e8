"""Weight decay: regularization terms added to gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refluid.ir import Variable, VarType, name_scope

__all__ = ["L1Decay", "L1DecayRegularizer", "L2Decay", "L2DecayRegularizer"]

# Fluid's suffix for a sparse gradient that weight decay made dense.
_NEW_GRAD = "@NEWGRAD@"


class WeightDecayRegularizer:
    """Base class: ``regularizer(param, grad, block)`` returns the term to add to ``grad``."""

    def __call__(self, param: Variable, grad: Variable, block: Any) -> Variable:
        raise NotImplementedError(f"{type(self).__name__} must implement __call__")


class L2DecayRegularizer(WeightDecayRegularizer):
    """Adds ``regularization_coeff * param`` to the gradient, the gradient of coeff / 2 * |param|^2."""

    def __init__(self, regularization_coeff: float = 0.0):
        self._regularization_coeff = _coefficient(regularization_coeff)

    def __call__(self, param, grad, block):
        decay = _temporary_like(param, block)
        _append_scale(block, param, decay, self._regularization_coeff)
        return decay

    def __str__(self) -> str:
        return f"L2Decay, regularization_coeff={self._regularization_coeff:f}"


class L1DecayRegularizer(WeightDecayRegularizer):
    """Adds ``regularization_coeff * sign(param)`` to the gradient, which makes parameters sparse."""

    def __init__(self, regularization_coeff: float = 0.0):
        self._regularization_coeff = _coefficient(regularization_coeff)

    def __call__(self, param, grad, block):
        decay = _temporary_like(param, block)
        block.append_op(type="sign", inputs={"X": param}, outputs={"Out": decay})
        _append_scale(block, decay, decay, self._regularization_coeff)
        return decay

    def __str__(self) -> str:
        return f"L1Decay, regularization_coeff={self._regularization_coeff:f}"


L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer


def append_regularization_ops(
    parameters_and_grads: Sequence[tuple[Variable, Variable | None]], regularization: Any = None
) -> list[tuple[Variable, Variable | None]]:
    """Applies each parameter's own regularizer, or else ``regularization``, to its gradient; returns the new pairs.

    As in Fluid, every row of a sparsely updated parameter decays, so its gradient becomes dense.
    """
    pairs = []
    with name_scope("regularization"):
        for param, grad in parameters_and_grads:
            regularizer = getattr(param, "regularizer", None) or regularization
            if grad is None or regularizer is None:
                pairs.append((param, grad))
                continue
            with param.block.program._optimized_guard([param, grad]):
                pairs.append((param, _regularized(regularizer, param, grad)))
    return pairs


def _regularized(regularizer: Any, param: Variable, grad: Variable) -> Variable:
    term = regularizer(param, grad, grad.block)
    new_grad = grad
    if grad.type == VarType.SELECTED_ROWS:
        new_grad = grad.block.create_var(
            name=grad.name + _NEW_GRAD, dtype=param.dtype, shape=param.shape, lod_level=param.lod_level
        )
    grad.block.append_op(type="sum", inputs={"X": [grad, term]}, outputs={"Out": new_grad})
    return new_grad


def _coefficient(value: float) -> float:
    if value is None:
        raise ValueError("a regularizer requires regularization_coeff")
    return value


def _temporary_like(param: Variable, block: Any) -> Variable:
    return block.create_var(dtype=param.dtype, shape=param.shape, lod_level=param.lod_level)


def _append_scale(block: Any, x: Variable, out: Variable, scale: float) -> None:
    block.append_op(type="scale", inputs={"X": x}, outputs={"Out": out}, attrs={"scale": scale})
