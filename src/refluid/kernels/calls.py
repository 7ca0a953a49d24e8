"""How XLA calls kernels.

A kernel is a C function ``work(frame, part, parts)`` that numba compiles; `frame` defines what it can read. No two
parts may write the same elements, and results must not depend on the number of parts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
from llvmlite import binding
from numba import cfunc, config

from refluid.kernels import frame, sharing

# Compiled steps in XLA's cache refer to kernels by their index here: append, never reorder.
_KERNELS = (
    *("lstm", "lstm_grad", "gru", "gru_grad", "matmul", "adam", "regions", "region_max", "taps", "matching"),
    *("depthwise", "channel_sums"),
)
_TARGET = "refluid_kernel"  # the custom call that all kernels share
_SOURCES = sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()[:8]
_table = sharing.shared_words(sharing.TABLE, [0] * len(_KERNELS))
_kept_alive: list[Any] = []  # code lives as long as these


class Kernel:
    """A kernel that can be called on JAX arrays, inside compiled computations on a CPU."""

    def __init__(self, name: str, work: Callable[[int, int, int], None], takes_any_rank: bool = False):
        """``takes_any_rank`` is for kernels that treat any float32 array as a vector; others take matrices only."""
        self._number = _KERNELS.index(name)
        self._takes_any_rank = takes_any_rank
        self._work = _c_function("void(int64, int64, int64)", work)
        _table[self._number] = self._work.address

    def __call__(
        self,
        arguments: Sequence[Any],
        results: Sequence[tuple[int, ...]],
        most_parts: int,
        mode: int = 0,
        in_place: Mapping[int, int] | None = None,
    ) -> Sequence[Any]:
        """The results, float32 of these shapes.

        Args:
          most_parts: how many parts are worth a thread of their own.
          mode: the value of the attribute `frame.MODE` in the kernel.
          in_place: argument index -> result index, for results that take over the memory of an argument. XLA copies
            arguments whose values are needed afterwards.
        """
        for x in arguments:
            fits = (x.dtype, x.ndim) in ((np.int64, 1), (np.float32, 2))
            fits |= self._takes_any_rank and x.dtype == np.float32 and x.ndim > 0
            assert fits, f"a kernel cannot take {x.dtype}{x.shape}"
        shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in results]
        make = jax.ffi.ffi_call(_TARGET, shapes, input_output_aliases=dict(in_place or {}))
        numbers = zip(frame.ATTRIBUTES, (self._number, mode, most_parts), strict=True)
        return make(*arguments, **{name: np.int64(number) for name, number in numbers})


def _c_function(signature: str, function: Callable[..., Any]) -> Any:
    """Compiles a function, or loads it from numba's cache.

    numba's cache is keyed by the file of the function alone, but the code includes what the function calls. So the
    name of the function includes a hash of all files here.
    """
    function.__qualname__ += f".{_SOURCES}"
    return cfunc(signature, cache=True, error_model="numpy")(function)


def _task(record):
    sharing.run_task(record)


def _handler(address):
    if not frame.reports_version(address):
        sharing.work(sharing.begin(address))
    return 0


def _register() -> None:
    """Registers the custom call with XLA."""
    task = _c_function("void(int64)", _task)
    binding.add_symbol(sharing.TASK, task.address)
    handler = _c_function("int64(int64)", _handler)
    _kept_alive.extend([task, handler])
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    jax.ffi.register_ffi_target(_TARGET, capsule(handler.address, None, None), platform="cpu")


if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
    raise ImportError("NUMBA_DISABLE_JIT is set")
frame.check_version()
_register()
