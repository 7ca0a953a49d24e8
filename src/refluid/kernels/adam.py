"""Adam for all parameters of a step in one pass.

XLA goes through a parameter and its moments three times, in about a dozen operations per layer, each dispatched to its
threads separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refluid.kernels.calls import Kernel
from refluid.kernels.frame import MODE, argument, argument_count, attribute, result
from refluid.kernels.products import ONE, in_order

_WORTH_A_THREAD = 1 << 14  # elements
_LINE = 16  # elements in a cache line; no two threads write the same line
_UPDATE, _ADVANCE = 0, 1

# The arguments are a vector of beta1, beta2 and epsilon, and for each parameter:
_PARAM, _GRAD, _RATE, _MOMENT1, _MOMENT2, _POWER1, _POWER2, _INPUTS = range(8)
# The results are the updated arguments, in the same memory.
_UPDATED = (_PARAM, _MOMENT1, _MOMENT2, _POWER1, _POWER2)
_NEW_PARAM, _NEW_MOMENT1, _NEW_MOMENT2, _NEW_POWER1, _NEW_POWER2, _OUTPUTS = range(6)


@in_order
def _update(param, grad, moment1, moment2, beta1, beta2, epsilon, rate):
    for i in range(param.shape[0]):
        first = beta1 * moment1[i] + (ONE - beta1) * grad[i]
        second = beta2 * moment2[i] + (ONE - beta2) * grad[i] * grad[i]
        moment1[i], moment2[i] = first, second
        param[i] -= rate * first / (np.sqrt(second) + epsilon)


@in_order
def _update_part(frame, part, parts):
    """Updates one part of every parameter."""
    constants = argument(frame, 0)
    beta1, beta2, epsilon = constants[0, 0], constants[1, 0], constants[2, 0]
    for n in range((argument_count(frame) - 1) // _INPUTS):
        inputs, outputs = 1 + n * _INPUTS, n * _OUTPUTS
        param, grad = result(frame, outputs + _NEW_PARAM).ravel(), argument(frame, inputs + _GRAD).ravel()
        moment1 = result(frame, outputs + _NEW_MOMENT1).ravel()
        moment2 = result(frame, outputs + _NEW_MOMENT2).ravel()
        power1, power2 = result(frame, outputs + _NEW_POWER1)[0, 0], result(frame, outputs + _NEW_POWER2)[0, 0]
        rate = argument(frame, inputs + _RATE)[0, 0] * np.sqrt(ONE - power2) / (ONE - power1)
        lines = (param.size + _LINE - 1) // _LINE
        mine = slice(lines * part // parts * _LINE, min(lines * (part + 1) // parts * _LINE, param.size))
        _update(param[mine], grad[mine], moment1[mine], moment2[mine], beta1, beta2, epsilon, rate)


def _work(frame, part, parts):
    if attribute(frame, MODE) == _UPDATE:
        _update_part(frame, part, parts)
    else:
        for i in range(argument_count(frame) - 1):
            result(frame, i)[0, 0] *= argument(frame, 0)[i % 2, 0]


_kernel = Kernel("adam", _work, takes_any_rank=True)


def adam(updates: Sequence[Sequence[Any]], beta1: float, beta2: float, epsilon: float) -> list[list[Any]]:
    """Updates parameters.

    Args:
      updates: for each, the parameter, gradient, learning rate, first and second moment, and powers of beta1 and beta2.

    Returns:
      for each, the new parameter, moments and powers.
    """
    constants = np.array([beta1, beta2, epsilon], np.float32)
    updated = [update[i] for update in updates for i in _UPDATED]
    places = [1 + n * _INPUTS + i for n in range(len(updates)) for i in _UPDATED]
    most_parts = max(1, sum(update[_PARAM].size for update in updates) // _WORTH_A_THREAD)
    results = _kernel(
        [constants, *(value for update in updates for value in update)],
        [value.shape for value in updated],
        most_parts,
        _UPDATE,
        {place: i for i, place in enumerate(places)},
    )
    new = [list(results[i : i + _OUTPUTS]) for i in range(0, len(results), _OUTPUTS)]
    # Powers pass through the update unchanged, because one part might read them after another has advanced them.
    powers = [power for values in new for power in values[-2:]]
    advanced = _kernel(
        [constants, *powers], [p.shape for p in powers], 1, _ADVANCE, {1 + i: i for i in range(len(powers))}
    )
    for n, values in enumerate(new):
        values[-2:] = advanced[2 * n : 2 * n + 2]
    return new
