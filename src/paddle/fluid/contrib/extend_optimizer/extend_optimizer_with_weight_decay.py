"""Weight decay that is apart from the gradient, as in AdamW."""

from __future__ import annotations

from typing import Any

from paddle.fluid import layers
from paddle.fluid.optimizer import Optimizer
from refluid.ir import Parameter, Variable, name_scope

__all__ = ["extend_with_decoupled_weight_decay"]


class DecoupledWeightDecay:
    """What `extend_with_decoupled_weight_decay` adds to an optimizer: parameters shrink before they are updated.

    Args:
      coeff: the share of a parameter that every step takes away, whatever the learning rate: a number or a variable.
      apply_decay_param_fun: called with the name of a parameter, says whether it shrinks; by default all do.
    """

    def __init__(self, coeff: float | Variable = 0.0, apply_decay_param_fun: Any = None, **kwargs: Any):
        if not isinstance(coeff, float | Variable):
            raise TypeError(f"weight_decay must be a float or a variable, not {coeff!r}")
        self._coeff, self._apply_decay_param_fun = coeff, apply_decay_param_fun
        self._params_name: set[str] = set()
        super().__init__(**kwargs)

    def apply_gradients(self, params_grads: Any) -> Any:
        """Appends the operators that shrink parameters, and those that update them."""
        shrunk = [(param, self._share(param)) for param, grad in params_grads if grad is not None]
        for param, share in shrunk:
            if share is not None:
                with param.block.program._optimized_guard([param, param]), name_scope("weight decay"):
                    layers.assign(input=layers.elementwise_sub(x=param, y=share), output=param)
        return super().apply_gradients(params_grads)  # pyright: ignore[reportAttributeAccessIssue]

    def _share(self, param: Parameter) -> Variable | None:
        applies = self._apply_decay_param_fun is None or self._apply_decay_param_fun(param.name)
        if not applies or (isinstance(self._coeff, float) and self._coeff == 0.0):
            return None
        self._params_name.add(param.name)
        with param.block.program._optimized_guard([param, param]), name_scope("weight decay"):
            return param * self._coeff

    def __str__(self) -> str:
        return f"Weight Decay, params: {','.join(sorted(self._params_name))}"


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """Returns a subclass of an optimizer whose first argument, ``weight_decay``, shrinks parameters in every step.

    >>> AdamW = fluid.contrib.extend_with_decoupled_weight_decay(fluid.optimizer.Adam)
    >>> AdamW(learning_rate=0.1, weight_decay=0.01).minimize(loss)
    """
    if not (isinstance(base_optimizer, type) and issubclass(base_optimizer, Optimizer)):
        raise TypeError(f"expected a class of optimizers, not {base_optimizer!r}")

    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecay, base_optimizer):
        """An optimizer with weight decay that is apart from the gradient."""

        def __init__(self, weight_decay, apply_decay_param_fun=None, **kwargs):
            super().__init__(weight_decay, apply_decay_param_fun, **kwargs)

    return OptimizerWithDecoupledWeightDecay
