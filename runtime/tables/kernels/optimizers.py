"""One step of an optimizer on one row.

The formulas are those of the ops of the same names (`refluid.ops.optimizer`), which update the other parameters; a test
holds both to the same numbers.
"""

from __future__ import annotations

import numpy as np
from numba import int64  # pyright: ignore[reportPrivateImportUsage]

from refluid.runtime.tables.kernels.memory import part

SGD, MOMENTUM, ADAGRAD, DECAYED_ADAGRAD, ADADELTA, ADAM, ADAMAX, RMSPROP, FTRL, ADD = range(10)

# What `step` reads: the optimizer, its constants, weight decay, and what is done to gradients first.
KIND, A, B, C, FLAG, L2, L1, SCALE, LOWEST, HIGHEST, LAZY = range(11)
RULE_SIZE = 11


@part
def step(rule, w, slots, width, g, rate, power, other):
    """Updates a row with a gradient: its weights ``w`` and its ``slots``. ``power`` and ``other`` are A and B to the
    number of the step, from 1 on.

    Constants are those of the ops: A is mu, beta1, decay or rho; B beta2, momentum or l1; C epsilon or l2; FLAG
    use_nesterov or centered.
    """
    kind, one = int64(rule[KIND]), w.dtype.type(1.0)
    a, b, c = w.dtype.type(rule[A]), w.dtype.type(rule[B]), w.dtype.type(rule[C])
    if kind == SGD:
        for i in range(width):
            w[i] -= rate * g[i]
    elif kind == MOMENTUM:
        for i in range(width):
            velocity = a * slots[i] + g[i]
            slots[i] = velocity
            w[i] -= rate * (g[i] + a * velocity) if rule[FLAG] else rate * velocity
    elif kind == ADAGRAD:
        for i in range(width):
            moment = slots[i] + g[i] * g[i]
            slots[i] = moment
            w[i] -= rate * g[i] / (np.sqrt(moment) + c)
    elif kind == DECAYED_ADAGRAD:
        for i in range(width):
            moment = a * slots[i] + (one - a) * g[i] * g[i]
            slots[i] = moment
            w[i] -= rate * g[i] / (np.sqrt(moment) + c)
    elif kind == ADADELTA:
        for i in range(width):
            squared = a * slots[i] + (one - a) * g[i] * g[i]
            update = slots[width + i]
            update = a * update + (one - a) * ((update + c) / (squared + c)) * g[i] * g[i]
            slots[i], slots[width + i] = squared, update
            w[i] -= np.sqrt((update + c) / (squared + c)) * g[i]
    elif kind == ADAM:
        # In float32, as the op computes it: 1 - 0.999 has only four digits there.
        corrected = rate * np.sqrt(one - w.dtype.type(other)) / (one - w.dtype.type(power))
        for i in range(width):
            first = a * slots[i] + (one - a) * g[i]
            second = b * slots[width + i] + (one - b) * g[i] * g[i]
            slots[i], slots[width + i] = first, second
            w[i] -= corrected * first / (np.sqrt(second) + c)
    elif kind == ADAMAX:
        corrected = rate / (one - w.dtype.type(power))
        for i in range(width):
            first = a * slots[i] + (one - a) * g[i]
            largest = max(abs(g[i]), b * slots[width + i] + c)
            slots[i], slots[width + i] = first, largest
            w[i] -= corrected * first / largest
    elif kind == RMSPROP:
        for i in range(width):
            square = a * slots[width + i] + (one - a) * g[i] * g[i]
            slots[width + i] = square
            if rule[FLAG]:
                mean = a * slots[2 * width + i] + (one - a) * g[i]
                slots[2 * width + i] = mean
                square -= mean * mean
            moment = b * slots[i] + rate * g[i] / np.sqrt(square + c)
            slots[i] = moment
            w[i] -= moment
    elif kind == FTRL:
        for i in range(width):
            before, after = slots[i], slots[i] + g[i] * g[i]
            root = np.sqrt(before) if a == -0.5 else before**-a
            new_root = np.sqrt(after) if a == -0.5 else after**-a
            linear = slots[width + i] + g[i] - (new_root - root) / rate * w[i]
            slots[i], slots[width + i] = after, linear
            pull = b if linear > 0 else -b
            w[i] = (pull - linear) / (new_root / rate + (c + c)) if abs(linear) > b else w.dtype.type(0.0)
    else:  # ADD: what GEO trainers send are changes
        for i in range(width):
            w[i] += g[i]


@part
def drifts(rule):
    """Whether rows change in steps in which they have no gradient."""
    kind = int64(rule[KIND])
    if kind == ADD or rule[LAZY]:
        return False
    return rule[L2] != 0.0 or rule[L1] != 0.0 or kind not in (SGD, ADAGRAD)


@part
def decay(rule, w, g, width):
    """Adds the gradient of weight decay to g."""
    l2, l1 = w.dtype.type(rule[L2]), w.dtype.type(rule[L1])
    for i in range(width):
        g[i] += l2 * w[i] + l1 * np.sign(w[i])
