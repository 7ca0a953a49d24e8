"""Sums of products along a row of pixels, for a vector of channels.

They are written for LLVM directly: numba's loops over channels load and store the sums for every product.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from refluid.kernels.memory import primitive
from refluid.kernels.tiles import load, multiply_add, store

FEW = 4  # lanes for channels that do not fill a vector; the last ones are computed one by one
_FLOAT, _WORD = ir.FloatType(), ir.IntType(64)


class _Loop:
    """A loop over pixels that is being written; what it carries from one to the next is declared first."""

    def __init__(self, builder: Any, count: Any):
        self.builder, self.count = builder, count
        self.before, self.body = builder.basic_block, builder.append_basic_block("pixel")
        self.after = builder.append_basic_block("after")
        builder.branch(self.body)
        builder.position_at_end(self.body)
        self.advances: list[tuple[Any, Any]] = []
        self.counter = self.advancing(_WORD(0), _WORD(1))

    def carry(self, kind: Any, first: Any) -> Any:
        value = self.builder.phi(kind)
        value.add_incoming(first, self.before)
        return value

    def advancing(self, first: Any, step: Any) -> Any:
        value = self.carry(_WORD, first)
        self.advances.append((value, step))
        return value

    def end(self) -> None:
        next_values = [self.builder.add(value, step) for value, step in self.advances]
        for (value, _), new in zip(self.advances, next_values, strict=True):
            value.add_incoming(new, self.body)
        self.builder.cbranch(self.builder.icmp_signed("<", next_values[0], self.count), self.body, self.after)
        self.builder.position_at_end(self.after)


def _places(builder: Any, address: Any, tap: Any, taps: int) -> list[Any]:
    return [builder.add(address, builder.mul(tap, _WORD(t))) for t in range(taps)]


@primitive
def slide(context, lanes, taps, x, x_step, x_tap, w, w_tap, out, out_step, count):
    """out[p] += the sum over t of x[p, t] * w[t], for p < count, which is at least 1.

    ``lanes`` and ``taps`` are literals. x[p, t] is at x + p * x_step + t * x_tap, in bytes, and so on.
    """
    number, width = taps.literal_value, lanes.literal_value

    def generate(context, builder, signature, arguments):
        _, _, x, x_step, x_tap, w, w_tap, out, out_step, count = arguments
        kind = ir.VectorType(_FLOAT, width)
        add_product = multiply_add(builder, kind)
        weights = [load(builder, kind, place) for place in _places(builder, w, w_tap, number)]
        shifts = _places(builder, _WORD(0), x_tap, number)
        loop = _Loop(builder, count)
        source, target = loop.advancing(x, x_step), loop.advancing(out, out_step)
        total = load(builder, kind, target)
        for weight, shift in zip(weights, shifts, strict=True):
            total = add_product(load(builder, kind, builder.add(source, shift)), weight, total)
        store(builder, total, target)
        loop.end()
        return context.get_dummy_value()

    return types.void(lanes, taps, *[types.int64] * 8), generate


@primitive
def weigh(context, lanes, taps, x, x_step, x_tap, g, g_step, count, out, out_tap):
    """out[t] += the sum over p < count of x[p, t] * g[p]; as in `slide`."""
    number, width = taps.literal_value, lanes.literal_value

    def generate(context, builder, signature, arguments):
        _, _, x, x_step, x_tap, g, g_step, count, out, out_tap = arguments
        kind = ir.VectorType(_FLOAT, width)
        add_product = multiply_add(builder, kind)
        shifts = _places(builder, _WORD(0), x_tap, number)
        loop = _Loop(builder, count)
        source, incoming = loop.advancing(x, x_step), loop.advancing(g, g_step)
        sums = [loop.carry(kind, ir.Constant(kind, [0.0] * width)) for _ in shifts]
        factor, totals = load(builder, kind, incoming), []
        for total, shift in zip(sums, shifts, strict=True):
            totals.append(add_product(load(builder, kind, builder.add(source, shift)), factor, total))
            total.add_incoming(totals[-1], loop.body)
        loop.end()
        for total, place in zip(totals, _places(builder, out, out_tap, number), strict=True):
            store(builder, builder.fadd(load(builder, kind, place), total), place)
        return context.get_dummy_value()

    return types.void(lanes, taps, *[types.int64] * 8), generate
