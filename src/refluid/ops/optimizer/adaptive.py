"""Optimizer ops that keep a scale for every element: Adagrad, Adam and similar ones."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp

from refluid import kernels
from refluid.ops.core.registry import op
from refluid.ops.core.values import SelectedRows
from refluid.ops.optimizer.gradient_descent import norm, shrink
from refluid.ops.optimizer.sparse_update import Touched, dense_gradient, gradient_of_all_rows, like, single

_update = partial(op, grad=None, slices="rows")
_KERNEL_FROM = 1 << 14  # elements; below, the kernel is not worth loading


@_update("adagrad", inputs="Param Grad Moment LearningRate", outputs="ParamOut MomentOut")
def adagrad(param, grad, moment, learning_rate, *, epsilon=1e-6):
    """moment += grad^2; param - learning_rate * grad / (sqrt(moment) + epsilon)."""
    touched = Touched(grad)
    new_moment = touched.take(moment) + touched.grad * touched.grad
    step = like(learning_rate, param) * touched.grad / (jnp.sqrt(new_moment) + epsilon)
    return touched.add(param, -step), touched.put(moment, new_moment)


@_update("decayed_adagrad", inputs="Param Grad Moment LearningRate", outputs="ParamOut MomentOut")
def decayed_adagrad(param, grad, moment, learning_rate, *, decay=0.95, epsilon=1e-6):
    """Adagrad with a decaying moment: moment = decay * moment + (1 - decay) * grad^2."""
    grad, decay = gradient_of_all_rows(grad), single(decay)
    moment = decay * moment + (1 - decay) * grad * grad
    return param - like(learning_rate, param) * grad / (jnp.sqrt(moment) + epsilon), moment


@_update("proximal_adagrad", inputs="Param Moment Grad LearningRate", outputs="ParamOut MomentOut")
def proximal_adagrad(param, moment, grad, learning_rate, *, l1=0.0, l2=0.0):
    """A step of Adagrad without epsilon, then shrinkage by l1 and l2 at the plain learning rate."""
    grad = dense_gradient(grad)
    rate = like(learning_rate, param)
    moment = moment + grad * grad
    return shrink(param - rate * grad / jnp.sqrt(moment), rate, l1, l2), moment


def _adam_in_one_pass(updates, *, beta1=0.9, beta2=0.999, epsilon=1e-8, lazy_mode=False):
    """Uses a kernel for dense parameters, if they are large enough in total."""
    suits = [_suits_kernel(*update) for update in updates]
    suited = [update[:7] for update, fits in zip(updates, suits, strict=True) if fits]
    kernel = kernels.find("adam") if sum(param.size for param, *_ in suited) >= _KERNEL_FROM else None
    if kernel is None:
        return [None] * len(updates)
    results = iter(kernel.adam(suited, beta1, beta2, epsilon))
    return [next(results) if fits else None for fits in suits]


def _suits_kernel(param, grad, rate, moment1, moment2, power1, power2, beta1_tensor, beta2_tensor):
    if isinstance(grad, SelectedRows) or beta1_tensor is not None or beta2_tensor is not None:
        return False
    tables, numbers = (param, grad, moment1, moment2), (rate, power1, power2)
    return (
        all(x is not None and x.dtype == jnp.float32 for x in (*tables, *numbers))
        and all(x.shape == param.shape and x.ndim for x in tables)
        and all(x.shape == (1,) for x in numbers)
    )


@_update(
    "adam",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow Beta1Tensor? Beta2Tensor?",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
    together=_adam_in_one_pass,
    in_place=True,
)
def adam(
    param,
    grad,
    learning_rate,
    moment1,
    moment2,
    beta1_pow,
    beta2_pow,
    beta1_tensor=None,
    beta2_tensor=None,
    *,
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-8,
    lazy_mode=False,
):
    """Adam. With SelectedRows the moments of all rows decay and all rows move, unless ``lazy_mode``.

    The power outputs are written by programs of 1.6 and later; earlier ones leave them unconnected and advance the
    powers with scale ops.
    """
    beta1 = single(beta1) if beta1_tensor is None else like(beta1_tensor, param)
    beta2 = single(beta2) if beta2_tensor is None else like(beta2_tensor, param)
    rate = like(learning_rate, param) * jnp.sqrt(1 - like(beta2_pow, param)) / (1 - like(beta1_pow, param))
    powers = (beta1_pow * beta1, beta2_pow * beta2)
    touched = Touched(grad)
    first, second = (1 - beta1) * touched.grad, (1 - beta2) * touched.grad * touched.grad
    if lazy_mode:
        first += beta1 * touched.take(moment1)
        second += beta2 * touched.take(moment2)
        step = rate * first / (jnp.sqrt(second) + epsilon)
        return touched.add(param, -step), touched.put(moment1, first), touched.put(moment2, second), *powers
    moment1 = touched.add(beta1 * moment1, first)
    moment2 = touched.add(beta2 * moment2, second)
    return param - rate * moment1 / (jnp.sqrt(moment2) + epsilon), moment1, moment2, *powers


@_update("adamax", inputs="Param Grad LearningRate Moment InfNorm Beta1Pow", outputs="ParamOut MomentOut InfNormOut")
def adamax(param, grad, learning_rate, moment, inf_norm, beta1_pow, *, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Adam with the decayed largest |grad| in place of the second moment."""
    grad, beta1, beta2 = gradient_of_all_rows(grad), single(beta1), single(beta2)
    moment = beta1 * moment + (1 - beta1) * grad
    inf_norm = jnp.maximum(jnp.abs(grad), beta2 * inf_norm + epsilon)
    rate = like(learning_rate, param) / (1 - like(beta1_pow, param))
    return param - rate * moment / inf_norm, moment, inf_norm


@_update(
    "adadelta",
    inputs="Param Grad AvgSquaredGrad AvgSquaredUpdate",
    outputs="ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
)
def adadelta(param, grad, squared_grad, squared_update, *, rho=0.95, epsilon=1e-6, replaces_state=True):
    """step = sqrt(E[update^2] / E[grad^2]) * grad, with running means E; there is no learning rate.

    Zeiler's paper uses E[update^2] before this step. In place, as the optimizer runs it, Fluid overwrites that first
    and uses the new value; so does this.
    """
    grad, rho = gradient_of_all_rows(grad), single(rho)
    squared_grad = rho * squared_grad + (1 - rho) * grad * grad
    squared_ratio = (squared_update + epsilon) / (squared_grad + epsilon)
    new_squared_update = rho * squared_update + (1 - rho) * squared_ratio * grad * grad
    used = new_squared_update if replaces_state else squared_update
    step = jnp.sqrt((used + epsilon) / (squared_grad + epsilon)) * grad
    return param - step, squared_grad, new_squared_update


@_update(
    "rmsprop",
    inputs="Param MeanSquare MeanGrad? Grad Moment LearningRate",
    outputs="ParamOut MomentOut MeanSquareOut MeanGradOut",
)
def rmsprop(
    param, mean_square, mean_grad, grad, moment, rate, *, epsilon=1e-10, decay=0.9, momentum=0.0, centered=False
):
    """moment = momentum * moment + learning_rate * grad / sqrt(mean square); param - moment, on every row.

    ``centered`` uses the variance instead of the mean square.
    """
    touched, decay = Touched(grad), single(decay)
    grad = touched.grad
    mean_square = touched.add(decay * mean_square, (1 - decay) * grad * grad)
    scale = touched.take(mean_square)
    if centered:
        mean_grad = touched.add(decay * mean_grad, (1 - decay) * grad)
        scale = scale - jnp.square(touched.take(mean_grad))
    moment = touched.add(momentum * moment, like(rate, param) * grad / jnp.sqrt(scale + epsilon))
    return param - moment, moment, mean_square, mean_grad


@_update(
    "ftrl",
    inputs="Param SquaredAccumulator LinearAccumulator Grad LearningRate",
    outputs="ParamOut SquaredAccumOut LinearAccumOut",
)
def ftrl(param, squared, linear, grad, learning_rate, *, l1=0.0, l2=0.0, lr_power=-0.5):
    """Follow the regularised leader, proximal form: elements whose linear part is within l1 become zero."""
    grad = gradient_of_all_rows(grad)
    rate = like(learning_rate, param)
    new_squared = squared + grad * grad
    root, new_root = _ftrl_root(squared, lr_power), _ftrl_root(new_squared, lr_power)
    linear = linear + grad - (new_root - root) / rate * param
    shrunk = (l1 * jnp.sign(linear) - linear) / (new_root / rate + 2 * l2)
    return jnp.where(jnp.abs(linear) > l1, shrunk, 0), new_squared, linear


def _ftrl_root(squared, lr_power: float):
    return jnp.sqrt(squared) if lr_power == -0.5 else squared**-lr_power


@op(
    "lamb",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow",
    outputs="ParamOut Moment1Out Moment2Out",
    grad=None,
)
def lamb(param, grad, rate, moment1, moment2, power1, power2, *, weight_decay, beta1=0.9, beta2=0.999, epsilon=1e-6):
    """Adam's direction plus weight decay, scaled to the norm of the parameter."""
    touched, beta1, beta2 = Touched(grad), single(beta1), single(beta2)
    moment1 = touched.add(beta1 * moment1, (1 - beta1) * touched.grad)
    moment2 = touched.add(beta2 * moment2, (1 - beta2) * touched.grad * touched.grad)
    direction = moment1 / (jnp.sqrt(moment2) + epsilon) + weight_decay * param
    param_norm, direction_norm = norm(param), norm(direction)
    ratio = jnp.where((param_norm > 0) & (direction_norm > 0), param_norm / direction_norm, 1)
    return param - like(rate, param) * ratio * direction, moment1, moment2
