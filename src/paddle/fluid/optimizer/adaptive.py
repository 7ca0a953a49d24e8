"""Optimizers with a per-element step size."""

from __future__ import annotations

from paddle.fluid.optimizer.base import Optimizer, State, state
from refluid.ir import Variable


class AdagradOptimizer(Optimizer):
    """Divides steps by the root of the accumulated squared gradients; sparse gradients update only their rows."""

    type = "adagrad"
    attributes = {"epsilon": "_epsilon"}

    def __init__(
        self,
        learning_rate,
        epsilon=1.0e-6,
        regularization=None,
        name=None,
        initial_accumulator_value=0.0,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)
        self._epsilon, self.initial_accumulator_value = epsilon, initial_accumulator_value

    def _states(self):
        return (state("moment", "Moment", self.initial_accumulator_value),)


class DecayedAdagradOptimizer(Optimizer):
    """Adagrad with an exponential moving average instead of the sum."""

    type = "decayed_adagrad"
    attributes = {"epsilon": "_epsilon", "decay": "_decay"}

    def __init__(
        self,
        learning_rate,
        decay=0.95,
        epsilon=1.0e-6,
        regularization=None,
        name=None,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)
        self._decay, self._epsilon = decay, epsilon

    def _states(self):
        return (state("moment", "Moment"),)


class AdadeltaOptimizer(Optimizer):
    """Scales steps by the ratio of the running RMS of updates and gradients; as in Fluid, ignores the learning rate."""

    type = "adadelta"
    attributes = {"epsilon": "_epsilon", "rho": "_rho"}

    def __init__(
        self,
        learning_rate,
        epsilon=1.0e-6,
        rho=0.95,
        regularization=None,
        name=None,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)
        self._epsilon, self._rho = epsilon, rho

    def _states(self):
        # The names start with an underscore in Fluid too, hence fc_0.w_0__avg_squared_grad_0.
        return state("_avg_squared_grad", "AvgSquaredGrad"), state("_avg_squared_update", "AvgSquaredUpdate")

    def _inputs(self, param_and_grad):
        return {}


class RMSPropOptimizer(Optimizer):
    """Divides gradients by the root of their running mean square, or of their variance if ``centered``."""

    type = "rmsprop"
    attributes = {"epsilon": "_epsilon", "decay": "_rho", "momentum": "_momentum", "centered": "_centered"}

    def __init__(
        self,
        learning_rate,
        rho=0.95,
        epsilon=1.0e-6,
        momentum=0.0,
        centered=False,
        regularization=None,
        name=None,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)
        self._rho, self._epsilon, self._momentum, self._centered = rho, epsilon, momentum, centered

    def _states(self):
        return state("momentum", "Moment"), state("mean_square", "MeanSquare"), state("mean_grad", "MeanGrad")


class FtrlOptimizer(Optimizer):
    """Follow the regularized leader: with ``l1``, most parameters become exactly zero (differs: ftrl-l2)."""

    type = "ftrl"
    attributes = {"l1": "_l1", "l2": "_l2", "lr_power": "_lr_power"}

    def __init__(
        self,
        learning_rate,
        l1=0.0,
        l2=0.0,
        lr_power=-0.5,
        regularization=None,
        name=None,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)
        self._l1, self._l2, self._lr_power = l1, l2, lr_power

    def _states(self):
        return (
            State("squared", "SquaredAccumulator", "SquaredAccumOut"),
            State("linear", "LinearAccumulator", "LinearAccumOut"),
        )


class AdamOptimizer(Optimizer):
    """Adam. ``beta1`` and ``beta2`` may be variables.

    A sparse gradient decays and updates all rows, unless ``lazy_mode`` leaves the other rows unchanged.
    """

    type = "adam"
    attributes = {"beta1": "_beta1", "beta2": "_beta2", "epsilon": "_epsilon", "lazy_mode": "_lazy_mode"}

    def __init__(
        self,
        learning_rate=0.001,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        regularization=None,
        name=None,
        lazy_mode=False,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon
        self._lazy_mode = lazy_mode

    def _states(self):
        first = 0.9 if isinstance(self._beta1, Variable) else self._beta1
        second = 0.999 if isinstance(self._beta2, Variable) else self._beta2
        return (
            state("moment1", "Moment1"),
            state("moment2", "Moment2"),
            state("beta1_pow_acc", "Beta1Pow", first, shape=(1,)),
            state("beta2_pow_acc", "Beta2Pow", second, shape=(1,)),
        )

    def _inputs(self, param_and_grad):
        betas = {"Beta1Tensor": self._beta1, "Beta2Tensor": self._beta2}
        tensors = {slot: beta for slot, beta in betas.items() if isinstance(beta, Variable)}
        return {**super()._inputs(param_and_grad), **tensors}

    def _attrs(self, param):
        attrs = {**super()._attrs(param), "min_row_size_to_use_multithread": 1000}
        return {name: value for name, value in attrs.items() if not isinstance(value, Variable)}


class LambOptimizer(AdamOptimizer):
    """Adam with weight decay and a layer-wise step size, for very large batches.

    Args:
      exclude_from_weight_decay_fn: called with a parameter; True disables its weight decay.
    """

    type = "lamb"

    def __init__(
        self,
        learning_rate=0.001,
        lamb_weight_decay=0.01,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-6,
        regularization=None,
        exclude_from_weight_decay_fn=None,
        name=None,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            regularization,
            name,
            parameter_list=parameter_list,
            grad_clip=grad_clip,
        )
        self._weight_decay = lamb_weight_decay
        self._exclude_from_weight_decay_fn = exclude_from_weight_decay_fn

    def _states(self):
        moments = super()._states()[:2]
        return (
            *moments,
            State("beta1_pow_acc", "Beta1Pow", None, self._beta1, shape=(1,)),
            State("beta2_pow_acc", "Beta2Pow", None, self._beta2, shape=(1,)),
        )

    def _attrs(self, param):
        excluded = self._exclude_from_weight_decay_fn is not None and self._exclude_from_weight_decay_fn(param)
        decay = 0.0 if excluded else self._weight_decay
        return {"beta1": self._beta1, "beta2": self._beta2, "epsilon": self._epsilon, "weight_decay": decay}


class AdamaxOptimizer(Optimizer):
    """Adam with an exponentially weighted infinity norm instead of the second moment."""

    type = "adamax"
    attributes = {"beta1": "_beta1", "beta2": "_beta2", "epsilon": "_epsilon"}

    def __init__(
        self,
        learning_rate=0.001,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        regularization=None,
        name=None,
        parameter_list=None,
        grad_clip=None,
    ):
        super().__init__(learning_rate, regularization, name, grad_clip, parameter_list)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon

    def _states(self):
        return (
            state("moment", "Moment"),
            state("inf_norm", "InfNorm"),
            State("beta1_pow_acc", "Beta1Pow", None, self._beta1, shape=(1,)),
        )

    def _finish_update(self, block, parameters_and_grads):
        for param, grad in parameters_and_grads:
            if grad is None or not param.trainable:
                continue
            with param.block.program._optimized_guard([param, grad]):
                power, attrs = self._get_accumulator("beta1_pow_acc", param), {"scale": self._beta1}
                block.append_op(type="scale", inputs={"X": power}, outputs={"Out": power}, attrs=attrs)


Adagrad = AdagradOptimizer
DecayedAdagrad = DecayedAdagradOptimizer
Adadelta = AdadeltaOptimizer
RMSProp = RMSPropOptimizer
Ftrl = FtrlOptimizer
Adam = AdamOptimizer
Lamb = LambOptimizer
Adamax = AdamaxOptimizer
