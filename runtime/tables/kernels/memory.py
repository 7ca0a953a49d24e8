"""The decorators of this package, and memory at an address as numba sees it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import intrinsic

from refluid.numba_functions import functions_in

kernel, part = functions_in(__file__)

# Arrays that a kernel only reads, in its signature; messages and JAX arrays cannot be written to.
IDS = 'Array(int64, 1, "C", readonly=True)'
VALUES = 'Array({0}, 2, "C", readonly=True)'

_BYTES = ir.IntType(8).as_pointer()


def primitive(function: Any) -> Any:
    """A numba intrinsic from a function that returns its signature and code generator."""
    return intrinsic(function)


@primitive
def pointer_to(context, address, like):
    """An address as a pointer to elements like those of an array, for `numba.carray`."""
    kind: Any = types.CPointer(like.dtype)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return kind(types.int64, like), generate


@primitive
def prefetch(context, address):
    """Starts to load the cache line of an address."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [_BYTES] + [ir.IntType(32)] * 3)
        function = builder.module.declare_intrinsic("llvm.prefetch", (_BYTES,), kind)
        options = [ir.Constant(ir.IntType(32), value) for value in (0, 3, 1)]  # to be read, kept in all caches, data
        builder.call(function, [builder.inttoptr(arguments[0], _BYTES), *options])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@primitive
def bits_as_float32(context, bits):
    """The float32 with these 32 bits."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


@primitive
def float32_as_bits(context, value):
    """The 32 bits of a float32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate
