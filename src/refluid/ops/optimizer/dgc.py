"""Deep gradient compression: what a worker holds back and what it sends.

From ``rampup_begin_step`` on, a worker accumulates its momentum-corrected gradients and sends only the largest elements
of the sum; the rest waits for later steps. Fluid encodes the selected elements for its own collective; here they stay
in place, with zeros elsewhere, so that any sum over workers works. Fluid selects them by sampling, on GPUs only; here
the selection is exact.
"""

from __future__ import annotations

import jax.numpy as jnp

from refluid.ops.core.registry import op
from refluid.ops.optimizer.gradient_descent import momentum, norm, sgd


@op(
    "dgc",
    inputs="U V Grad Param? current_step nranks",
    outputs="U_out V_out EncodeGrad Grad_out k GatherBuff",
    grad=None,
)
def dgc(
    u,
    v,
    grad,
    param,
    current_step,
    nranks,
    *,
    m=0.9,
    use_nesterov=True,
    sparsity=(),
    rampup_begin_step=0.0,
    rampup_step=0.0,
    regular_coeff=0.0,
    regular_type=0,
):
    """Adds grad to the velocity u, u to the residual v, and sends the largest elements of v.

    ``sparsity`` lists the fractions to hold back during the ``rampup_step`` steps after the start; the last one stays
    in effect. Sent elements are cleared in u and v. EncodeGrad and GatherBuff are not written.
    """
    grad = grad * _ranks(nranks)
    if regular_type:
        grad = grad + regular_coeff * (jnp.sign(param) if regular_type == 1 else param)
    new_u = m * (u + grad) if use_nesterov else m * u + grad
    new_v = new_u + v + grad if use_nesterov else new_u + v
    step = current_step.reshape(()) - rampup_begin_step
    count = _passed_count(step, sparsity, rampup_step, grad.size)
    ordered = jnp.sort(jnp.abs(new_v).reshape(-1), descending=True)
    passed = jnp.abs(new_v) >= ordered[count - 1]
    begun = step >= 0
    return (
        jnp.where(begun, jnp.where(passed, 0, new_u), u),
        jnp.where(begun, jnp.where(passed, 0, new_v), v),
        None,
        jnp.where(begun, jnp.where(passed, new_v, 0), grad),
        count.reshape((1,)).astype(grad.dtype),
        None,
    )


def _passed_count(step, sparsity, rampup_step: float, size: int):
    """How many elements are sent at ``step`` after the start."""
    counts = jnp.asarray([max(round(size * (1 - share)), 1) for share in sparsity], jnp.int32)
    period = (step * len(sparsity) / max(rampup_step, 1.0)).astype(jnp.int32)
    return counts[jnp.clip(period, 0, len(sparsity) - 1)]


@op(
    "dgc_momentum",
    inputs="Param Grad Velocity LearningRate current_step nranks",
    outputs="ParamOut VelocityOut Grad_out",
    grad=None,
)
def dgc_momentum(
    param, grad, velocity, learning_rate, current_step, nranks, *, mu, use_nesterov=False, rampup_begin_step=0.0
):
    """Momentum before the compression starts; SGD afterwards, because `dgc` has applied momentum to the gradient."""
    grad = grad / _ranks(nranks)
    moved, new_velocity = momentum(param, grad, velocity, learning_rate, mu=mu, use_nesterov=use_nesterov)
    begun = current_step.reshape(()) >= rampup_begin_step
    return (
        jnp.where(begun, sgd(param, grad, learning_rate), moved),
        jnp.where(begun, velocity, new_velocity),
        grad,
    )


@op("dgc_clip_by_norm", inputs="X current_step", outputs="Out", grad=None)
def dgc_clip_by_norm(x, current_step, *, max_norm, rampup_begin_step=-1.0):
    """x clipped to norm max_norm once the compression has started."""
    begun = (current_step.reshape(()) >= rampup_begin_step) & (rampup_begin_step >= 0)
    return jnp.where(begun, x * (max_norm / jnp.maximum(norm(x), max_norm)), x)


def _ranks(nranks):
    """The number of workers; it is -1 until a program is run on several."""
    return jnp.maximum(nranks.reshape(()), 1)
