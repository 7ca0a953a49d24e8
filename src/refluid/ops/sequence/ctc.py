"""Connectionist temporal classification: the loss of labels whose alignment with the steps is unknown."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.core.checks import require_in_range
from refluid.ops.core.infer import ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.packing import outermost, rows_per_sequence

_IMPOSSIBLE = -1e30  # the logarithm of zero probability; finite, so that gradients stay finite


def _infer_loss(inputs, attrs):
    # As in real Fluid, the number of sequences is not declared.
    return {"Loss": [ShapeDtype((-1, 1), inputs["Logits"][0].dtype)]}


@op(
    "warpctc",
    inputs="Logits Label LogitsLength? LabelLength?",
    outputs="WarpCTCGrad? Loss",
    differentiable="Logits",
    lod="aware",
    infer=_infer_loss,
)
def warpctc(logits, label, logits_length=None, label_length=None, *, blank=0, norm_by_times=False):
    """-log P(label | softmax(logits)), over all alignments; 0 if the label does not fit into the steps.

    Takes packed sequences, or Logits [steps, sequences, classes] and Label [sequences, ...] with the lengths of both.
    """
    if logits_length is not None and label_length is not None:
        steps, rows = plain(logits_length).reshape(-1), plain(logits)
        sizes, labels = plain(label_length).reshape(-1), plain(label)
    elif isinstance(logits, Ragged) and isinstance(label, Ragged):
        logits, label = outermost(logits), outermost(label)
        if logits.sequences != label.sequences:
            raise ValueError(f"there are {logits.sequences} sequences in Logits and {label.sequences} in Label")
        steps, rows = logits.lengths, logits.to_padded().swapaxes(0, 1)
        sizes, labels = label.lengths, label.to_padded()
    else:
        raise ValueError(
            "Logits and Label must be sequences (fed as LoDTensors), or come with LogitsLength and LabelLength"
        )
    labels = labels.reshape(steps.shape[0], -1)
    within = jnp.arange(labels.shape[1]) < sizes[:, None]
    require_in_range(jnp.where(within, labels, 0), rows.shape[2], slot="Label", whole=False)
    if norm_by_times:  # only the gradient is divided by the number of steps
        rows = _with_scaled_gradient(rows, 1 / jnp.maximum(steps, 1).astype(rows.dtype)[:, None])
    labels = jnp.where(within, labels, blank)
    # WarpCTCGrad is what real Fluid's kernel saves for its gradient; nothing here reads it.
    loss = _ctc_loss(rows, steps, labels, sizes, blank)[:, None]
    return jnp.zeros_like(rows), rows_per_sequence(logits, loss) if logits_length is None else loss


def _ctc_loss(logits, steps, labels, sizes, blank):
    """A loss for each sequence; ``labels`` are ``blank`` after their end."""
    count, width = labels.shape
    # A path is blank, label, blank, label, ..., blank.
    path = jnp.full((count, 2 * width + 1), blank, labels.dtype).at[:, 1::2].set(labels)
    repeats = jnp.concatenate([jnp.zeros((count, 2), bool), path[:, 2:] == path[:, :-2]], axis=1)
    may_skip = (path != blank) & ~repeats
    emitted = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=2), path[None], axis=2)

    def step(alpha, at):
        emitted, running = at
        stay_or_move = jnp.logaddexp(alpha, _shifted(alpha, 1))
        new = jnp.logaddexp(stay_or_move, jnp.where(may_skip, _shifted(alpha, 2), _IMPOSSIBLE)) + emitted
        return jnp.where(running[:, None], new, alpha), None

    places = jnp.arange(2 * width + 1)
    first = jnp.where(places < 2, emitted[0], _IMPOSSIBLE)
    running = jnp.arange(logits.shape[0])[1:, None] < steps
    last, _ = lax.scan(step, first, (emitted[1:], running))
    ends = (places == 2 * sizes[:, None]) | (places == 2 * sizes[:, None] - 1)
    likelihood = jax.nn.logsumexp(jnp.where(ends, last, _IMPOSSIBLE), axis=1)
    # Consecutive equal labels need a blank between them.
    inner = jnp.arange(1, width) < sizes[:, None]
    needed = sizes + jnp.sum((labels[:, 1:] == labels[:, :-1]) & inner, axis=1)
    return jnp.where((needed <= steps) & (steps > 0), -likelihood, 0)


def _shifted(alpha, by):
    return jnp.pad(alpha, ((0, 0), (by, 0)), constant_values=_IMPOSSIBLE)[:, : alpha.shape[1]]


@jax.custom_vjp
def _with_scaled_gradient(value, scale):
    """``value``, whose gradient is multiplied by ``scale``."""
    return value


_with_scaled_gradient.defvjp(lambda value, scale: (value, scale), lambda scale, g: (g * scale, None))
