"""Linear-chain conditional random fields: their cost and their best path, over packed or padded sequences.

Row 0 of Transition holds the weights for starting with a tag, row 1 those for ending with it, row 2 + i those for going
from tag i to another. Internally, sequences are padded to [sequences, steps, ...], with their lengths.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import stop_gradient

from refluid.ops.core.checks import require, require_in_range
from refluid.ops.core.infer import ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.packing import require_single_level, rows_per_sequence


def _infer_crf(inputs, attrs):
    emission, transition = inputs["Emission"][0], inputs["Transition"][0]
    # As in real Fluid, a cost is declared for each row of packed sequences, because their number is unknown.
    costs = ShapeDtype((emission.shape[0], 1), emission.dtype)
    alike = emission._replace(lod_level=0)
    return {"Alpha": [alike], "EmissionExps": [alike], "TransitionExps": [transition], "LogLikelihood": [costs]}


@op(
    "linear_chain_crf",
    inputs="Emission Transition Label Length?",
    outputs="Alpha EmissionExps TransitionExps LogLikelihood",
    lod="aware",
    infer=_infer_crf,
)
def linear_chain_crf(emission, transition, label, length=None):
    """log Z - score(label) for each sequence: Fluid calls the cost LogLikelihood. Alpha is normalised at every step."""
    scores, lengths = _padded(emission, length, "Emission")
    labels = _padded_labels(label, emission, length, scores.shape[1])
    inside = _inside(lengths, scores.shape[1])
    require_in_range(jnp.where(inside, labels, 0), scores.shape[2], slot="Label", whole=False)

    largest = stop_gradient(scores.max(axis=2, keepdims=True))
    exps, transition_exps = jnp.exp(scores - largest), jnp.exp(transition)

    def step(carry, at):
        alpha, log_total = carry
        exps, largest, running = at
        new = (alpha @ transition_exps[2:]) * exps
        total = new.sum(axis=1, keepdims=True)
        alpha = jnp.where(running, new / total, alpha)
        return (alpha, log_total + jnp.where(running, largest + jnp.log(total), 0)), alpha

    first = transition_exps[0] * exps[:, 0]
    total = first.sum(axis=1, keepdims=True)
    over_time = tuple(x.swapaxes(0, 1)[1:] for x in (exps, largest, inside[:, :, None]))
    carry = (first / total, largest[:, 0] + jnp.log(total))
    (last, log_total), alphas = lax.scan(step, carry, over_time)
    log_total += jnp.log(jnp.sum(last * transition_exps[1], axis=1, keepdims=True))
    cost = jnp.where(lengths[:, None] > 0, log_total - _score(scores, transition, labels, lengths, inside), 0)

    alphas = jnp.concatenate([carry[0][:, None], alphas.swapaxes(0, 1)], axis=1)
    alphas = jnp.where(inside[:, :, None], alphas, 0)
    if length is None:
        alphas, exps = (emission.as_rows(emission.from_padded(each).data) for each in (alphas, exps))
        cost = rows_per_sequence(emission, cost)
    else:
        alphas, exps, cost = _rows_like(emission, alphas), _rows_like(emission, exps), _rows_like(emission, cost)
    return *jax.tree.map(stop_gradient, (alphas, exps, transition_exps)), cost


def _score(scores, transition, labels, lengths, inside):
    """The scores of the given tags, as a column."""
    labels = jnp.where(inside, labels, 0)
    emitted = jnp.take_along_axis(scores, labels[:, :, None], axis=2)[:, :, 0]
    moved = transition[2:][labels[:, :-1], labels[:, 1:]]
    last = jnp.take_along_axis(labels, jnp.maximum(lengths - 1, 0)[:, None], axis=1)[:, 0]
    total = jnp.where(inside, emitted, 0).sum(axis=1) + jnp.where(inside[:, 1:], moved, 0).sum(axis=1)
    return (total + transition[0][labels[:, 0]] + transition[1][last])[:, None]


@op("crf_decoding", inputs="Emission Transition Label? Length?", outputs="ViterbiPath", grad=None, lod="aware")
def crf_decoding(emission, transition, label=None, length=None):
    """The tags of the best path; with Label, 1 where the path agrees with it and 0 elsewhere."""
    scores, lengths = _padded(emission, length, "Emission")
    steps = scores.shape[1]
    inside = _inside(lengths, steps)

    def forward(best, at):
        scores, running = at
        through = best[:, :, None] + transition[2:]
        new = through.max(axis=1) + scores
        return jnp.where(running, new, best), jnp.argmax(through, axis=1)

    over_time = scores.swapaxes(0, 1)[1:], inside.T[1:, :, None]
    best, came_from = lax.scan(forward, transition[0] + scores[:, 0], over_time)
    last = jnp.argmax(best + transition[1], axis=1)

    def backward(tag, at):
        came_from, running = at
        before = jnp.take_along_axis(came_from, tag[:, None], axis=1)[:, 0]
        return jnp.where(running, before, tag), tag

    # ``running``: whether the later of two steps is inside the sequence; until then, the last tag is kept.
    first, tags = lax.scan(backward, last, (came_from, inside.T[1:]), reverse=True)
    path = jnp.concatenate([first[None], tags]).T.astype(jnp.int64)
    if label is not None:
        path = (path == _padded_labels(label, emission, length, steps)).astype(jnp.int64)
    path = jnp.where(inside, path, 0)
    return emission.from_padded(path[:, :, None]) if length is None else _rows_like(emission, path)


def _padded(value, length, slot):
    """Sequences as [sequences, steps, ...], and their lengths."""
    if length is not None:
        return plain(value), plain(length).reshape(-1)
    if not isinstance(value, Ragged):
        raise ValueError(f"{slot} must be sequences (lod_level=1, fed as a LoDTensor), or come with Length")
    sequences = require_single_level(value, slot)
    return sequences.to_padded(), sequences.lengths


def _padded_labels(label, emission, length, steps):
    """Labels as [sequences, steps]."""
    if length is None:
        label = require_single_level(label, "Label")
        if label.sequences != emission.sequences:
            raise ValueError(f"there are {label.sequences} sequences in Label and {emission.sequences} in Emission")
        require(label.lengths == emission.lengths, "the sequences of Label and Emission differ in length")
        label = label.to_padded()
    padded = plain(label)
    padded = padded.reshape(padded.shape[0], -1)[:, :steps]
    return jnp.pad(padded, ((0, 0), (0, steps - padded.shape[1])))


def _inside(lengths, steps):
    return jnp.arange(steps) < lengths[:, None]


def _rows_like(model, value):
    return model.as_rows(value) if isinstance(model, Ragged) else value
