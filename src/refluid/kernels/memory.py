"""What numba has no words for: memory and functions at an address, words that threads share, and the clock."""

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
    """Makes a function of numba's out of one that gives its signature and code; ``context`` is no argument of it."""
    return intrinsic(prefer_literal=True)(function)


@primitive
def float32_at(context, address):
    """The address as a pointer that `numba.carray` takes."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.int64), generate


@primitive
def int64_at(context, address):
    """The address as a pointer that `numba.carray` takes."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], _WORD.as_pointer())

    return types.CPointer(types.int64)(types.int64), generate


@primitive
def call(context, function, argument):
    """Calls the C function at an address, which takes an address and gives one."""

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
    """The address of what has that name, a literal, in this process."""
    symbol = name.literal_value

    def generate(context, builder, signature, arguments):
        module = builder.module
        known = module.globals.get(symbol) or ir.GlobalVariable(module, _WORD, symbol)
        return builder.ptrtoint(known, _WORD)

    return types.int64(name), generate


@primitive
def count(context, address, amount):
    """Adds to the integer at an address, and gives what it was before; no other thread comes in between."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@primitive
def read(context, address):
    """The integer at an address, that other threads may write."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(builder.inttoptr(arguments[0], _WORD.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), generate


@primitive
def replace(context, address, old, new):
    """Puts ``new`` where ``old`` is, at an address; whether it was there."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        found = builder.cmpxchg(pointer, arguments[1], arguments[2], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return types.boolean(*[types.int64] * 3), generate


def _from_c(name: str, result: ir.Type, *parameters: ir.Type):
    """Code that calls a function of the C library with the arguments, as integers."""

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
    """The address of that many new bytes."""
    return types.int64(types.int64), _from_c("malloc", _BYTES, _WORD)


@primitive
def release(context, address):
    """Gives back what `allocate` gave."""
    return types.void(types.int64), _from_c("free", ir.VoidType(), _BYTES)


@primitive
def let_others_run(context):
    """Lets the operating system run another thread."""
    return types.int32(), _from_c("sched_yield", ir.IntType(32))


@primitive
def _write_clock(context, clock, place):
    return types.int32(types.int32, types.int64), _from_c("clock_gettime", ir.IntType(32), ir.IntType(32), _BYTES)


@njit
def read_clock(place):
    """A time in nanoseconds; ``place`` is the address of 16 bytes to use for it."""
    _write_clock(_CLOCK, place)
    seconds = carray(int64_at(place), (2,))
    return seconds[0] * 1_000_000_000 + seconds[1]
