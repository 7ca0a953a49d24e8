"""What the kernels of this package are made of: the decorator, and memory at an address.

Records lie at any address, so loads and stores assume no alignment.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import intrinsic

from refluid.numba_functions import functions_in

kernel, part = functions_in(__file__)


def primitive(function: Any) -> Any:
    """A numba intrinsic from a function that returns its signature and code generator."""
    return intrinsic(function)


def _loads(kind: Any, element: ir.Type, widen: str | None = None) -> Any:
    def generate(context, builder, signature, arguments):
        value = builder.load(builder.inttoptr(arguments[0], element.as_pointer()), align=1)
        return value if widen is None else getattr(builder, widen)(value, ir.IntType(64))

    return kind(types.int64), generate


def _stores(kind: Any, element: ir.Type, narrow: bool = False) -> Any:
    def generate(context, builder, signature, arguments):
        value = builder.trunc(arguments[1], element) if narrow else arguments[1]
        builder.store(value, builder.inttoptr(arguments[0], element.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, kind), generate


@primitive
def load_byte(context, address):
    """The byte at an address, as int64."""
    return _loads(types.int64, ir.IntType(8), "zext")


@primitive
def load_int64(context, address):
    """The int64 at an address."""
    return _loads(types.int64, ir.IntType(64))


@primitive
def load_int32(context, address):
    """The four bytes at an address, as int64."""
    return _loads(types.int64, ir.IntType(32), "zext")


@primitive
def load_uint64(context, address):
    """The uint64 at an address."""
    return _loads(types.uint64, ir.IntType(64))


@primitive
def trailing_zeros(context, value):
    """How many of the lowest bits of a uint64 are 0; 64 if all are."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@primitive
def store_byte(context, address, value):
    """Stores the lowest byte of an int64."""
    return _stores(types.int64, ir.IntType(8), narrow=True)


@primitive
def store_int32(context, address, value):
    """Stores the lowest four bytes of an int64."""
    return _stores(types.int64, ir.IntType(32), narrow=True)


@primitive
def store_int64(context, address, value):
    """Stores an int64."""
    return _stores(types.int64, ir.IntType(64))


@primitive
def store_float32(context, address, value):
    """Stores a float32."""
    return _stores(types.float32, ir.FloatType())


@primitive
def bits_of(context, value):
    """The 64 bits of a float64."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@primitive
def copy(context, target, source, size):
    """Copies bytes between two places that do not overlap."""

    def generate(context, builder, signature, arguments):
        module, place = builder.module, ir.IntType(8).as_pointer()
        kind = ir.FunctionType(place, [place, place, ir.IntType(64)])
        memcpy = module.globals.get("memcpy") or ir.Function(module, kind, "memcpy")
        builder.call(memcpy, [builder.inttoptr(a, place) for a in arguments[:2]] + [arguments[2]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate
