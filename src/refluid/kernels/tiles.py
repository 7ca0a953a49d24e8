"""Products of matrices, tile by tile: a tile of the result stays in vector registers while its sums accumulate.

The code of a tile is written for LLVM directly. numba's loops cannot hold a tile in registers, and are half as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types

from refluid.kernels.memory import primitive
from refluid.kernels.products import fast

LANES = 16 if binding.get_host_cpu_features().get("avx512f") else 8  # of a vector register
ROWS, VECTORS = 6, 2  # of a tile: with a row of the panel and a factor, they just fit into 16 registers
WIDTH = VECTORS * LANES
DEPTH = 256  # how many rows of a panel stay in the L1 cache

_FLOAT, _WORD, _INDEX = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_VECTOR_SIZE = 4 * LANES


def load(builder: Any, kind: Any, address: Any) -> Any:
    """The value at an address, which need not be aligned to more than floats are."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)


def store(builder: Any, value: Any, address: Any) -> None:
    """The reverse of `load`."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=4)


def _shuffled(builder: Any, first: Any, second: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(_INDEX, len(lanes)), lanes))


def _broadcast(builder: Any, scalar: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    return _shuffled(builder, builder.insert_element(nothing, scalar, _INDEX(0)), nothing, [0] * LANES)


def multiply_add(builder: Any, kind: Any) -> Callable[..., Any]:
    """a * b + c of vectors, rounded once if the CPU supports it."""
    name = f"llvm.fmuladd.v{kind.count}f32"
    function = builder.module.globals.get(name)
    function = function or ir.Function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return lambda a, b, c: builder.call(function, [a, b, c])


@primitive
def _multiply_tile(context, rows, vectors, a, a_row, a_depth, panel, depth, out, out_row, adds):
    """out = a @ panel for the first ``rows`` rows and ``vectors`` vectors; with ``adds``, out += a @ panel.

    ``rows`` and ``vectors`` are literals. Matrices are given by the addresses of their first elements, and the
    distances in bytes to the next row and to the next element along the depth. A panel is WIDTH columns wide, and its
    rows are contiguous.
    """
    tile_rows, tile_vectors = range(rows.literal_value), range(vectors.literal_value)

    def generate(context, builder, signature, arguments):
        _, _, a, a_row, a_depth, panel, depth, out, out_row, adds = arguments
        add_product = multiply_add(builder, _VECTOR)
        before, loop = builder.basic_block, builder.append_basic_block("depth")
        sums_done = builder.append_basic_block("sums_done")
        starts = [builder.mul(a_row, _WORD(i)) for i in tile_rows]
        builder.branch(loop)

        builder.position_at_end(loop)
        counter, factors, row = builder.phi(_WORD), builder.phi(_WORD), builder.phi(_WORD)
        sums = [[builder.phi(_VECTOR) for _ in tile_vectors] for _ in tile_rows]
        columns = [load(builder, _VECTOR, builder.add(row, _WORD(v * _VECTOR_SIZE))) for v in tile_vectors]
        new_sums = []
        for i in tile_rows:
            factor = _broadcast(builder, load(builder, _FLOAT, builder.add(factors, starts[i])))
            new_sums.append([add_product(factor, columns[v], sums[i][v]) for v in tile_vectors])
        steps = [(counter, _WORD(0), _WORD(1)), (factors, a, a_depth), (row, panel, _WORD(VECTORS * _VECTOR_SIZE))]
        for value, first, step in steps:
            value.add_incoming(first, before)
            value.add_incoming(builder.add(value, step), loop)
        for i in tile_rows:
            for v in tile_vectors:
                sums[i][v].add_incoming(ir.Constant(_VECTOR, [0.0] * LANES), before)
                sums[i][v].add_incoming(new_sums[i][v], loop)
        counted = counter.incomings[1][0]
        builder.cbranch(builder.icmp_signed("<", counted, depth), loop, sums_done)

        builder.position_at_end(sums_done)
        places = [
            [
                builder.add(builder.add(out, builder.mul(out_row, _WORD(i))), _WORD(v * _VECTOR_SIZE))
                for v in tile_vectors
            ]
            for i in tile_rows
        ]
        with builder.if_else(builder.trunc(adds, ir.IntType(1))) as (then, otherwise):
            for branch, is_added in ((then, True), (otherwise, False)):
                with branch:
                    for i in tile_rows:
                        for v in tile_vectors:
                            value, place = new_sums[i][v], places[i][v]
                            value = builder.fadd(load(builder, _VECTOR, place), value) if is_added else value
                            store(builder, value, place)
        return context.get_dummy_value()

    return types.void(rows, vectors, *[types.int64] * 8), generate


@primitive
def _move(context, source, target):
    """Copies as many elements as a panel has columns."""

    def generate(context, builder, signature, arguments):
        for v in range(VECTORS):
            source, target = (builder.add(address, _WORD(v * _VECTOR_SIZE)) for address in arguments)
            store(builder, load(builder, _VECTOR, source), target)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@primitive
def _transpose(context, source, source_row, target, target_row):
    """Copies the transpose of a square that is as wide as a vector."""

    def generate(context, builder, signature, arguments):
        source, source_row, target, target_row = arguments
        rows = [load(builder, _VECTOR, builder.add(source, builder.mul(source_row, _WORD(i)))) for i in range(LANES)]
        distance = 1
        while distance < LANES:  # swaps the off-diagonal quarters of squares twice as wide
            for i in range(LANES):
                if not i & distance:
                    pair = rows[i], rows[i + distance]
                    lanes = [j if not j & distance else LANES + j - distance for j in range(LANES)]
                    rows[i] = _shuffled(builder, *pair, lanes)
                    rows[i + distance] = _shuffled(
                        builder, *pair, [j + distance if not j & distance else LANES + j for j in range(LANES)]
                    )
            distance *= 2
        for i, row in enumerate(rows):
            store(builder, row, builder.add(target, builder.mul(target_row, _WORD(i))))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


def _multiply_rows(vectors: int) -> Any:
    """`_multiply_tile` for any number of rows up to ROWS; compiling fewer tile sizes takes less time."""

    @fast
    def multiply_rows(rows, a, a_row, a_depth, panel, depth, out, out_row, adds):
        if rows == ROWS:
            _multiply_tile(ROWS, vectors, a, a_row, a_depth, panel, depth, out, out_row, adds)
            return
        if rows & 4:
            _multiply_tile(4, vectors, a, a_row, a_depth, panel, depth, out, out_row, adds)
        i = rows & 4
        if rows & 2:
            _multiply_tile(2, vectors, a + i * a_row, a_row, a_depth, panel, depth, out + i * out_row, out_row, adds)
        i = rows & 6
        if rows & 1:
            _multiply_tile(1, vectors, a + i * a_row, a_row, a_depth, panel, depth, out + i * out_row, out_row, adds)

    return multiply_rows


_multiply_wide, _multiply_narrow = _multiply_rows(VECTORS), _multiply_rows(1)


@fast
def _pack(panel, b):
    """Copies columns of ``b`` into a panel; missing columns become zeros."""
    depth, width = b.shape
    source, target, row = b.ctypes.data, panel.ctypes.data, panel.strides[0]
    done = 0
    if width < WIDTH:
        panel[:depth] = 0
    elif b.strides[1] == 4:
        for k in range(depth):
            _move(source + k * b.strides[0], target + k * row)
        done = depth
    elif b.strides[0] == 4:
        done = depth // LANES * LANES
        for k in range(0, done, LANES):
            for j in range(0, WIDTH, LANES):
                _transpose(source + 4 * k + j * b.strides[1], b.strides[1], target + k * row + 4 * j, row)
    for k in range(done, depth):
        for j in range(width):
            panel[k, j] = b[k, j]


@fast
def multiply(out, a, b):
    """out = a @ b; each row of ``out`` is contiguous; ``a`` and ``b`` may be transposed."""
    height, width = out.shape
    memory = np.empty(DEPTH * WIDTH + 16, np.float32)
    shift = 15 - (memory.ctypes.data // 4 + 15) % 16  # rows of a panel must not straddle cache lines
    panel = memory[shift : shift + DEPTH * WIDTH].reshape(DEPTH, WIDTH)
    edge = np.empty((ROWS, WIDTH), np.float32)
    if a.shape[1] == 0:
        out[:] = 0
    for start in range(0, a.shape[1], DEPTH):
        depth = min(DEPTH, a.shape[1] - start)
        adds = 1 if start else 0
        for left in range(0, width, WIDTH):
            columns = min(WIDTH, width - left)
            _pack(panel, b[start : start + depth, left : left + columns])
            for top in range(0, height, ROWS):
                rows = min(ROWS, height - top)
                factors = a.ctypes.data + top * a.strides[0] + start * a.strides[1]
                here = panel.ctypes.data
                if columns == WIDTH:
                    place = out.ctypes.data + top * out.strides[0] + 4 * left
                    _multiply_wide(rows, factors, a.strides[0], a.strides[1], here, depth, place, out.strides[0], adds)
                    continue
                place = edge.ctypes.data
                if columns > LANES:
                    _multiply_wide(rows, factors, a.strides[0], a.strides[1], here, depth, place, 4 * WIDTH, 0)
                else:
                    _multiply_narrow(rows, factors, a.strides[0], a.strides[1], here, depth, place, 4 * WIDTH, 0)
                for i in range(rows):
                    for j in range(columns):
                        before = out[top + i, left + j] if adds else np.float32(0)
                        out[top + i, left + j] = before + edge[i, j]
