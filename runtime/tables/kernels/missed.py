"""Steps that a row has missed, because they had no gradient for it.

An optimizer that moves rows without a gradient, by momentum or weight decay, moves all rows of a table in every step.
Here a row makes up for the steps it has missed when it is used next.

- A step of SGD or Momentum, with or without L2 decay, maps a weight and its velocity (w, v) to (a w + b v, c w + d v)
  if there is no gradient, with the same numbers for all rows. Maps of consecutive steps are composed into those of
  blocks, and blocks into large blocks, so that a row makes up for a million steps with about a thousand products.
- Without weight decay, what moves a row gets smaller, and the row stands still after a few hundred steps.
- Others have no closed form. A row makes up for the last `MOST_MISSED` steps one by one, so that its cost is bounded,
  and leaves out the weight decay before them.

The learning rates of the last `RATES` steps are known one by one, those before them as the mean of their block.
"""

from __future__ import annotations

from numba import int64  # pyright: ignore[reportPrivateImportUsage]

from refluid.runtime.tables.kernels.memory import kernel, part
from refluid.runtime.tables.kernels.optimizers import (
    ADADELTA,
    ADAM,
    ADAMAX,
    DECAYED_ADAGRAD,
    FLAG,
    FTRL,
    KIND,
    L1,
    L2,
    MOMENTUM,
    RMSPROP,
    SGD,
    A,
    B,
    C,
    decay,
    step,
)

RATES = 1 << 16  # the learning rates of so many steps are remembered one by one
MOST_MISSED = 1 << 10
BLOCK = 256  # steps of a block; blocks of a large block
LARGE = BLOCK * BLOCK
MAP_SIZE = 5  # a, b, c, d, and the sum of the learning rates of a block, or the version that a map begins at
_KNOWN = RATES - 1024  # steps may begin while another thread reads


@part
def is_linear(rule):
    """Whether steps without a gradient are linear maps."""
    return rule[L1] == 0.0 and (rule[KIND] == SGD or rule[KIND] == MOMENTUM)


@part
def _map(rule, rate):
    """One step without a gradient."""
    decay, mu = rule[L2], rule[A]
    if rule[KIND] == SGD:
        return 1.0 - rate * decay, 0.0, 0.0, 1.0
    if rule[FLAG]:
        return 1.0 - rate * decay * (1.0 + mu), -rate * mu * mu, decay, mu
    return 1.0 - rate * decay, -rate * mu, decay, mu


@part
def _follow(maps, place, a, b, c, d):
    """Has the map (a, b, c, d) follow the one at a place."""
    a0, b0, c0, d0 = maps[place, 0], maps[place, 1], maps[place, 2], maps[place, 3]
    maps[place, 0], maps[place, 1] = a * a0 + b * c0, a * b0 + b * d0
    maps[place, 2], maps[place, 3] = c * a0 + d * c0, c * b0 + d * d0


@part
def _clear(maps, place):
    maps[place, 0] = maps[place, 3] = 1.0
    maps[place, 1] = maps[place, 2] = maps[place, 4] = 0.0


@kernel("void(float64[::1], float64[::1], float64[:, ::1], float64[:, ::1], int64, int64, float64)")
def remember(rule, rates, blocks, large, begin, end, rate):
    """Records the steps after ``begin`` up to ``end``, all with one learning rate. There is room for their blocks."""
    a, b, c, d = _map(rule, rate)
    for number in range(begin + 1, end + 1):
        if end - number < RATES:
            rates[number % RATES] = rate
        place = (number - 1) // BLOCK
        if (number - 1) % BLOCK == 0:
            _clear(blocks, place)
        _follow(blocks, place, a, b, c, d)
        blocks[place, 4] += rate
        if number % BLOCK == 0:
            if place % BLOCK == 0:
                _clear(large, place // BLOCK)
            _follow(large, place // BLOCK, blocks[place, 0], blocks[place, 1], blocks[place, 2], blocks[place, 3])


@part
def _rate_of(number, now, rates, blocks):
    return rates[number % RATES] if now - number < _KNOWN else blocks[(number - 1) // BLOCK, 4] / BLOCK


@part
def _compose(rule, rates, blocks, large, version, now, memo):
    """The map of the steps after ``version`` up to ``now``, in ``memo``."""
    _clear(memo, 0)
    done = version
    while done < now:
        if done % LARGE == 0 and done + LARGE <= now:
            at = done // LARGE
            _follow(memo, 0, large[at, 0], large[at, 1], large[at, 2], large[at, 3])
            done += LARGE
        elif done % BLOCK == 0 and done + BLOCK <= now:
            at = done // BLOCK
            _follow(memo, 0, blocks[at, 0], blocks[at, 1], blocks[at, 2], blocks[at, 3])
            done += BLOCK
        else:
            done += 1
            a, b, c, d = _map(rule, _rate_of(done, now, rates, blocks))
            _follow(memo, 0, a, b, c, d)
    memo[0, 4] = version


@part
def catch_up(rule, w, slots, width, rates, blocks, large, version, now, g, before, memo):
    """Makes up for the steps after ``version`` up to ``now``. g, before: scratch; memo: the last map, and its version,
    which holds as long as ``now`` does."""
    if not is_linear(rule):
        _make_up_one_by_one(rule, w, slots, width, rates, blocks, version, now, g, before)
        return
    if memo[0, 4] != version:
        _compose(rule, rates, blocks, large, version, now, memo)
    a, b, c, d = memo[0, 0], memo[0, 1], memo[0, 2], memo[0, 3]
    for i in range(width):
        weight = w[i]
        if rule[KIND] == SGD:
            w[i] = w.dtype.type(a * weight)
        else:
            w[i] = w.dtype.type(a * weight + b * slots[i])
            slots[i] = w.dtype.type(c * weight + d * slots[i])


@part
def _make_up_one_by_one(rule, w, slots, width, rates, blocks, version, now, g, before):
    decays = rule[L2] != 0.0 or rule[L1] != 0.0
    kind, number = int64(rule[KIND]), version
    if kind == FTRL and not decays:
        number = now - 1  # without a gradient, a row depends on the last learning rate only
    if not decays and kind in (DECAYED_ADAGRAD, ADADELTA):
        _let_decay(rule, slots, width, now - version)
        return
    if decays and now - version > MOST_MISSED:
        number = now - MOST_MISSED
        _let_decay(rule, slots, width, number - version)
    power, other = rule[A] ** number, rule[B] ** number
    while number < now:
        number, power, other = number + 1, power * rule[A], other * rule[B]
        for i in range(width):
            g[i], before[i] = 0.0, w[i]
        if decays:
            decay(rule, w, g, width)
        step(rule, w, slots, width, g, w.dtype.type(_rate_of(number, now, rates, blocks)), power, other)
        if decays:
            continue
        moved = False
        for i in range(width):
            moved |= before[i] != w[i]
        if not moved:  # nor will it: what moves it only gets smaller
            _let_decay(rule, slots, width, now - number)
            return


@part
def _let_decay(rule, slots, width, steps):
    """What is left of the slots after many steps without a gradient."""
    kind, a, b, c = int64(rule[KIND]), rule[A], rule[B], rule[C]
    if kind in (MOMENTUM, DECAYED_ADAGRAD):
        for i in range(width):
            slots[i] *= a**steps
    elif kind == ADADELTA:
        for i in range(2 * width):
            slots[i] *= a**steps
    elif kind == ADAM:
        for i in range(width):
            slots[i] *= a**steps
            slots[width + i] *= b**steps
    elif kind == ADAMAX:
        for i in range(width):
            slots[i] *= a**steps
            slots[width + i] = slots[width + i] * b**steps + c * (1.0 - b**steps) / (1.0 - b)
    elif kind == RMSPROP:
        for i in range(width):
            slots[i] *= b**steps
            slots[width + i] *= a**steps
            if rule[FLAG]:
                slots[2 * width + i] *= a**steps
