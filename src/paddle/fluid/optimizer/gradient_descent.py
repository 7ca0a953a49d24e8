"""Gradient descent with and without momentum."""

from __future__ import annotations

from paddle.fluid.optimizer.base import Optimizer, state


class SGDOptimizer(Optimizer):
    """Stochastic gradient descent; a sparse gradient updates only its rows."""

    type = "sgd"

    def __init__(self, learning_rate, regularization=None, name=None, parameter_list=None, grad_clip=None):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)


class MomentumOptimizer(Optimizer):
    """Gradient descent with momentum, optionally Nesterov's."""

    type = "momentum"
    attributes = {"mu": "_momentum", "use_nesterov": "_use_nesterov"}

    def __init__(
        self,
        learning_rate,
        momentum,
        use_nesterov=False,
        regularization=None,
        name=None,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)
        self._momentum, self._use_nesterov = momentum, bool(use_nesterov)

    def _states(self):
        return (state("velocity", "Velocity"),)


class LarsMomentumOptimizer(Optimizer):
    """Momentum with a layer-wise learning rate, computed from the norms of parameter and gradient."""

    type = "lars_momentum"
    attributes = {"mu": "_momentum", "lars_coeff": "_lars_coeff", "lars_weight_decay": "_lars_weight_decay"}

    def __init__(
        self,
        learning_rate,
        momentum,
        lars_coeff=0.001,
        lars_weight_decay=0.0005,
        regularization=None,
        name=None,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)
        self._momentum = momentum
        self._lars_coeff, self._lars_weight_decay = float(lars_coeff), float(lars_weight_decay)

    def _states(self):
        return (state("velocity", "Velocity"),)


class DpsgdOptimizer(Optimizer):
    """Differentially private SGD: clips gradients to norm ``clip`` and adds noise.

    The noise is independent for every element, whereas Fluid adds one number to all of them.
    """

    type = "dpsgd"

    def __init__(self, learning_rate=0.001, clip=0.9, batch_size=0.999, sigma=1e-8, parameter_list=None):
        super().__init__(learning_rate, parameter_list=parameter_list)
        self._clip, self._batch_size, self._sigma = clip, batch_size, sigma
        # As in Fluid, a seed set here makes every step draw the same noise.
        self._seed: int | None = None

    def _attrs(self, param):
        return {"clip": self._clip, "batch_size": self._batch_size, "sigma": self._sigma, "seed": self._seed or 0}


SGD = SGDOptimizer
Momentum = MomentumOptimizer
LarsMomentum = LarsMomentumOptimizer
Dpsgd = DpsgdOptimizer
