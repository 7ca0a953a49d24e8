"""Optimizer ops that follow the gradient's direction: SGD, momentum and similar ones.

No gradient flows through an optimizer op. State outputs carry the name of the state they replace.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from refluid.ops.core.checks import require
from refluid.ops.core.registry import op
from refluid.ops.core.values import SelectedRows
from refluid.ops.optimizer.sparse_update import add_gradient, dense_gradient, like


@op("sgd", inputs="Param Grad LearningRate", outputs="ParamOut", grad=None, slices="rows")
def sgd(param, grad, learning_rate):
    """param - learning_rate * grad. A parameter of SelectedRows must have every row of the gradient."""
    if isinstance(param, SelectedRows):
        return _step_of_rows(param, grad, like(learning_rate, param.values))
    return add_gradient(param, grad, -like(learning_rate, param))


def _step_of_rows(param, grad, rate):
    if not isinstance(grad, SelectedRows):
        raise ValueError("Param is SelectedRows, so Grad must be, too")
    order = jnp.argsort(param.rows)
    place = jnp.minimum(jnp.searchsorted(param.rows[order], grad.rows), param.rows.size - 1)
    place = order[place]
    held = param.rows[place] == grad.rows
    require(held | (grad.rows == grad.height), "Param does not hold every row of Grad")
    place = jnp.where(held, place, param.rows.size)
    return param.map_values(lambda values: values.at[place].add(-rate * grad.values, mode="drop"))


@op("momentum", inputs="Param Grad Velocity LearningRate", outputs="ParamOut VelocityOut", grad=None, slices="rows")
def momentum(param, grad, velocity, learning_rate, *, mu=0.9, use_nesterov=False):
    """velocity = mu * velocity + grad; param - learning_rate * velocity, on every row even if grad is sparse.

    With Nesterov momentum the step is learning_rate * (grad + mu * velocity).
    """
    rate = like(learning_rate, param)
    velocity = add_gradient(mu * velocity, grad)
    if use_nesterov:
        return add_gradient(param - rate * mu * velocity, grad, -rate), velocity
    return param - rate * velocity, velocity


@op("lars_momentum", inputs="Param Grad Velocity LearningRate", outputs="ParamOut VelocityOut", grad=None)
def lars_momentum(param, grad, velocity, learning_rate, *, mu=0.9, lars_coeff=0.001, lars_weight_decay=0.0005):
    """Momentum whose rate is scaled by lars_coeff * |param| / (|grad| + lars_weight_decay * |param|)."""
    grad = dense_gradient(grad)
    rate = like(learning_rate, param)
    param_norm, grad_norm = norm(param), norm(grad)
    local = rate * lars_coeff * param_norm / (grad_norm + lars_weight_decay * param_norm)
    rate = jnp.where((param_norm > 0) & (grad_norm > 0), local, rate)
    velocity = mu * velocity + rate * (grad + lars_weight_decay * param)
    return param - velocity, velocity


@op("proximal_gd", inputs="Param Grad LearningRate", outputs="ParamOut", grad=None, slices="rows")
def proximal_gd(param, grad, learning_rate, *, l1=0.0, l2=0.0):
    """A step of SGD, then shrinkage by l1 and l2."""
    rate = like(learning_rate, param)
    return shrink(param - rate * dense_gradient(grad), rate, l1, l2)


def shrink(proposed, rate, l1: float, l2: float):
    """The proximal operator of l1 * |x| + l2 / 2 * x^2."""
    if l1 > 0:
        proposed = jnp.sign(proposed) * jnp.maximum(jnp.abs(proposed) - rate * l1, 0)
    return proposed / (1 + rate * l2)


@op("dpsgd", inputs="Param Grad LearningRate", outputs="ParamOut", grad=None, random=True)
def dpsgd(param, grad, learning_rate, *, clip=10.0, batch_size=16.0, sigma=1.0, seed=0, key):
    """SGD on the gradient clipped to norm ``clip``, with Gaussian noise of deviation sigma / batch_size.

    Real Fluid draws one number and adds it to every element. Differential privacy requires independent noise, so here
    every element has its own (differs: dpsgd-noise).
    """
    grad = dense_gradient(grad)
    clipped = grad / jnp.maximum(norm(grad) / clip, 1)
    noise = jax.random.normal(jax.random.key(seed) if seed else key, param.shape, param.dtype) * sigma
    return param - like(learning_rate, param) * (clipped + noise / batch_size)


def norm(x):
    """The Euclidean norm of all elements."""
    return jnp.sqrt(jnp.sum(x * x))
