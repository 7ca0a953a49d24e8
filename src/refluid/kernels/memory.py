"""Primitives that numba lacks: memory and functions at an address, atomic operations, and the clock."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import intrinsic

_CLOCK = np.int32(time.CLOCK_MONOTONIC)
_WORD, _BYTES = ir.IntType(64), ir.IntType(8).as_pointer()


def primitive(function: Any) -> Any:
    """A numba intrinsic from a function that returns its signature and code generator."""
    return intrinsic(prefer_literal=True)(function)


def _pointer(kind: Any, element: ir.Type) -> Any:
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], element.as_pointer())

    return types.CPointer(kind)(types.int64), generate


@primitive
def float32_at(context, address):
    """The address as a pointer that `numba.carray` takes."""
    return _pointer(types.float32, ir.FloatType())


@primitive
def int64_at(context, address):
    """The address as a pointer that `numba.carray` takes."""
    return _pointer(types.int64, _WORD)


@primitive
def call(context, function, argument):
    """Calls the C function at an address, which takes an address and returns one."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.FunctionType(_WORD, [_WORD]).as_pointer())
        return builder.call(pointer, [arguments[1]])

    return types.int64(types.int64, types.int64), generate


@primitive
def call_part(context, function, frame, part, parts):
    """Calls the C function at an address, which takes three integers."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [_WORD] * 3)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@primitive
def symbol_address(context, name):
    """The address of a symbol of this process; the name is a literal."""
    symbol = name.literal_value

    def generate(context, builder, signature, arguments):
        module = builder.module
        known = module.globals.get(symbol) or ir.GlobalVariable(module, _WORD, symbol)
        return builder.ptrtoint(known, _WORD)

    return types.int64(name), generate


@primitive
def atomic_add(context, address, amount):
    """Atomically adds to the integer at an address and returns the old value."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@primitive
def atomic_load(context, address):
    """Atomically reads the integer at an address."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(builder.inttoptr(arguments[0], _WORD.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), generate


@primitive
def compare_and_swap(context, address, old, new):
    """Atomically replaces ``old`` by ``new`` at an address; returns whether ``old`` was there."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        found = builder.cmpxchg(pointer, arguments[1], arguments[2], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return types.boolean(*[types.int64] * 3), generate


def _from_c(name: str, result: ir.Type, *parameters: ir.Type):
    """A code generator that calls a function of the C library; arguments and result are integers."""

    def generate(context, builder, signature, arguments):
        module = builder.module
        function = module.globals.get(name) or ir.Function(module, ir.FunctionType(result, parameters), name)
        given = [
            builder.inttoptr(value, kind) if isinstance(kind, ir.PointerType) else value
            for value, kind in zip(arguments, parameters, strict=True)
        ]
        value = builder.call(function, given)
        if isinstance(result, ir.PointerType):
            return builder.ptrtoint(value, _WORD)
        return context.get_dummy_value() if isinstance(result, ir.VoidType) else value

    return generate


@primitive
def allocate(context, size):
    """The address of newly allocated bytes."""
    return types.int64(types.int64), _from_c("malloc", _BYTES, _WORD)


@primitive
def release(context, address):
    """Frees memory from `allocate`."""
    return types.void(types.int64), _from_c("free", ir.VoidType(), _BYTES)


@primitive
def yield_core(context):
    """Yields the core to another thread (sched_yield)."""
    return types.int32(), _from_c("sched_yield", ir.IntType(32))


@primitive
def _write_clock(context, clock, place):
    return types.int32(types.int32, types.int64), _from_c("clock_gettime", ir.IntType(32), ir.IntType(32), _BYTES)


@njit
def read_clock(place):
    """The monotonic clock in nanoseconds; ``place`` is the address of 16 bytes of scratch memory."""
    _write_clock(_CLOCK, place)
    seconds = carray(int64_at(place), (2,))
    return seconds[0] * 1_000_000_000 + seconds[1]
