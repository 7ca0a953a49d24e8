"""Gradient ops, derived from forward rules with jax.vjp.

``<type>_grad`` takes the forward op's inputs and outputs and the gradients of its outputs (``Out@GRAD``), and returns
the gradients of its inputs (``X@GRAD``). On its own it recomputes the forward rule from its inputs; a lowering with the
forward op in the same piece calls `forward_with_pullback` once instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from refluid.ops.core.registry import GRAD_SUFFIX, OpDef, Slot
from refluid.ops.core.values import is_inexact, plain, to_dense

Arguments = dict[str, list[Any]]
Pullback = Callable[[Arguments], Arguments]


def forward_with_pullback(
    definition: OpDef, arguments: Arguments, attrs: dict[str, Any], **services: Any
) -> tuple[Arguments, Pullback]:
    """Runs the rule and returns its outputs with the function from ``Out@GRAD`` to ``X@GRAD``."""
    leaves, tree = jax.tree.flatten(arguments)
    slots = [path[0].key for path, _ in jax.tree_util.tree_flatten_with_path(arguments)[0]]
    wanted = [i for i, leaf in enumerate(leaves) if is_inexact(leaf) and _takes_gradient(definition, slots[i])]

    def run(*inexact):
        filled = list(leaves)
        for i, leaf in zip(wanted, inexact, strict=True):
            filled[i] = leaf
        outputs = definition.call(jax.tree.unflatten(tree, filled), attrs, **services)
        return [leaf for leaf in jax.tree.leaves(outputs) if is_inexact(leaf)], outputs

    results, vjp, outputs = jax.vjp(run, *(leaves[i] for i in wanted), has_aux=True)

    def pullback(cotangents: Arguments) -> Arguments:
        gradients = vjp(_match_cotangents(outputs, cotangents, results))
        spread: list[Any] = [None] * len(leaves)
        for i, gradient in zip(wanted, gradients, strict=True):
            spread[i] = gradient
        by_slot = jax.tree.unflatten(tree, spread)
        return {slot + GRAD_SUFFIX: [_rows(value) for value in values] for slot, values in by_slot.items()}

    return outputs, pullback


def _rows(value: Any) -> Any:
    return [plain(each) for each in value] if isinstance(value, list) else plain(value)


def _takes_gradient(definition: OpDef, slot: str) -> bool:
    return definition.differentiable is None or slot in definition.differentiable


def _match_cotangents(outputs: Arguments, cotangents: Arguments, results: list[Any]) -> list[Any]:
    """One cotangent for each floating-point result: the incoming one, or zeros if there is none."""
    incoming = []
    for slot, values in sorted(outputs.items()):  # jax flattens dicts in key order
        given = cotangents.get(slot + GRAD_SUFFIX) or [None] * len(values)
        for value, cotangent in zip(values, given, strict=True):
            inexact = [leaf for leaf in jax.tree.leaves(value) if is_inexact(leaf)]
            coming = [] if cotangent is None else [x for x in jax.tree.leaves(to_dense(cotangent)) if is_inexact(x)]
            incoming += coming if len(coming) == len(inexact) else [None] * len(inexact)
    return [
        jnp.zeros_like(result) if cotangent is None else jnp.asarray(cotangent, result.dtype).reshape(result.shape)
        for result, cotangent in zip(results, incoming, strict=True)
    ]


def custom_vjp(*static: int) -> Callable[[Callable[..., Any]], Any]:
    """`jax.custom_vjp` with the arguments at these positions static."""
    return partial(jax.custom_vjp, nondiff_argnums=static)


def derive_gradient_op(forward: OpDef) -> OpDef:
    """The gradient op of ``forward``, as a function of its own inputs."""
    optional = [replace(slot, optional=True) for slot in (*forward.inputs, *forward.outputs)]
    outgoing = [Slot(s.name + GRAD_SUFFIX, s.repeated, optional=True) for s in forward.outputs]
    incoming = [
        Slot(s.name + GRAD_SUFFIX, s.repeated, optional=True)
        for s in forward.inputs
        if _takes_gradient(forward, s.name)
    ]
    slots = (*optional, *outgoing)

    def rule(*values, **attrs):
        services = {name: attrs.pop(name) for name in forward.services if name in attrs}
        given = {
            slot.name: list(value) if slot.repeated else [value]
            for slot, value in zip(slots, values, strict=True)
            if value is not None and not (slot.repeated and not value)
        }
        arguments = {slot.name: given[slot.name] for slot in forward.inputs if slot.name in given}
        _, pullback = forward_with_pullback(forward, arguments, attrs, **services)
        gradients = pullback({s.name: given[s.name] for s in outgoing if s.name in given})
        found = [gradients.get(slot.name) for slot in incoming]
        results = [v if s.repeated or v is None else v[0] for s, v in zip(incoming, found, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)

    return OpDef(
        type=forward.type + "_grad",
        rule=rule,
        inputs=slots,
        outputs=tuple(incoming),
        attrs=forward.attrs,
        services=forward.services,
        static=forward.static,
        random=forward.random,
        host=forward.host,
        lod="aware" if forward.lod == "aware" else None,
        forward=forward,
    )
