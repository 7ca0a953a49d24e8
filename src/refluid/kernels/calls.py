"""How XLA calls kernels: its C interface for foreign functions, as far as they need it.

A kernel is a C function ``work(frame, part, parts)`` that numba compiles. ``frame`` is the address of XLA's call frame,
whose arguments and results `integers`, `argument` and `result` give as arrays. No two parts may write the same
elements, and what they write must not depend on how many parts there are.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
from llvmlite import binding
from numba import carray, cfunc, config, njit  # pyright: ignore[reportPrivateImportUsage]

from refluid.kernels.memory import (
    allocate,
    call,
    call_part,
    count,
    float32_at,
    int64_at,
    let_others_run,
    release,
    symbol_address,
)

_MAJOR, _MINOR = 0, 3  # the version of the interface that the numbers below belong to; XLA asks for it
# Where the fields are that we use, in words of 8 bytes: in XLA_FFI_CallFrame, XLA_FFI_Buffer, XLA_FFI_Api ...
_EXTENSION, _API, _CONTEXT, _ARGUMENTS, _RESULTS, _ATTRIBUTES = 1, 2, 3, 9, 14, 20
_DATA, _DIMS = 3, 5
_DESTROY_ERROR, _SCHEDULE, _COUNT_THREADS = 8, 17, 18
# ... in XLA_FFI_Metadata_Extension, XLA_FFI_Metadata and XLA_FFI_Scalar ...
_METADATA, _VERSION, _VALUE = 3, 3, 1
_ASKS_FOR_METADATA = 1  # the type of that extension
# ... and in our own record of a running kernel.
_FRAME, _WORK, _NEXT, _PARTS, _DONE, _USERS, _THREADS, _REQUEST, _RECORD = 0, 1, 2, 3, 4, 5, 6, 7, 12

# By number, as XLA keeps compiled steps that hold these numbers.
_KERNELS = ("lstm", "lstm_grad", "gru", "gru_grad", "matmul")
_TARGET = "refluid_kernel"  # the custom call that all kernels are
# What compiled code finds by name, because it outlives this process in numba's cache.
_TABLE, _TASK = "refluid_kernel_table", "refluid_kernel_task"
_SOURCES = sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()[:8]
_table = (ctypes.c_int64 * len(_KERNELS))()  # addresses of kernels
_kept_alive: list[Any] = []  # code lives as long as these

_compiled = njit(error_model="numpy")


@_compiled
def _words(address, number) -> Any:
    return carray(int64_at(address), (number,))


@_compiled
def _word(address, index) -> Any:
    return _words(address, index + 1)[index]


@_compiled
def integers(frame, index):
    """The argument with that number, a vector of int64."""
    buffer = _word(_word(frame, _ARGUMENTS), index)
    return _words(_word(buffer, _DATA), _word(_word(buffer, _DIMS), 0))


@_compiled
def _matrix(buffer):
    dims = _word(buffer, _DIMS)
    return carray(float32_at(_word(buffer, _DATA)), (_word(dims, 0), _word(dims, 1)))


@_compiled
def argument(frame, index):
    """The argument with that number, a matrix of float32."""
    return _matrix(_word(_word(frame, _ARGUMENTS), index))


@_compiled
def result(frame, index):
    """The result with that number, a matrix of float32."""
    return _matrix(_word(_word(frame, _RESULTS), index))


@_compiled
def _attribute(frame, index):
    """The attribute with that number in the order of names, an int64."""
    return _word(_word(_word(_word(frame, _ATTRIBUTES), index), _VALUE), 0)


@_compiled
def mode(frame):
    """The number that the kernel was called with to tell it what to do."""
    return _attribute(frame, 1)


@_compiled
def _tells_version(frame):
    """Whether XLA only asked for the version of the interface; it has it then."""
    extension = _word(frame, _EXTENSION)
    if extension == 0 or _word(extension, 1) & 0xFFFFFFFF != _ASKS_FOR_METADATA:
        return False
    _words(_word(extension, _METADATA), _VERSION + 1)[_VERSION] = _MAJOR | _MINOR << 32
    return True


@_compiled
def _ask(frame, function, request, first, second, third):
    """Calls a function of XLA's with a structure of these words; whether there was no error."""
    structure = _words(request, 5)
    structure[0], structure[1], structure[2], structure[3], structure[4] = 40, 0, first, second, third
    api = _word(frame, _API)
    error = call(_word(api, function), request)
    if error != 0:
        structure[0], structure[2] = 24, error
        call(_word(api, _DESTROY_ERROR), request)
    return error == 0


@_compiled
def _begin(frame):
    """The record of a kernel that begins, with other threads of XLA's asked to help."""
    record = allocate(8 * _RECORD)
    state = _words(record, _RECORD)
    for i in range(_RECORD):
        state[i] = 0
    number, most = _attribute(frame, 0), _attribute(frame, 2)
    state[_FRAME], state[_WORK] = frame, _word(symbol_address(_TABLE), number)
    request, context = record + 8 * _REQUEST, _word(frame, _CONTEXT)
    if not _ask(frame, _COUNT_THREADS, request, context, record + 8 * _THREADS, 0):
        state[_THREADS] = 1
    parts = max(1, min(most, state[_THREADS]))
    state[_PARTS], state[_USERS] = parts, parts
    for _ in range(parts - 1):
        if not _ask(frame, _SCHEDULE, request, context, symbol_address(_TASK), record):
            count(record + 8 * _USERS, -1)
    return record


@_compiled
def _work_and_leave(record, waits):
    """Works at parts until nobody has to begin one; then, with ``waits``, until all are done."""
    state = _words(record, _RECORD)
    parts = state[_PARTS]
    part = count(record + 8 * _NEXT, 1)
    while part < parts:  # who comes late finds none, and the frame may be gone then
        call_part(state[_WORK], state[_FRAME], part, parts)
        count(record + 8 * _DONE, 1)
        part = count(record + 8 * _NEXT, 1)
    while waits and count(record + 8 * _DONE, 0) < parts:
        let_others_run()
    if count(record + 8 * _USERS, -1) == 1:
        release(record)


class Kernel:
    """A kernel that can be called on JAX arrays, inside compiled computations on a CPU."""

    def __init__(self, name: str, work: Callable[[int, int, int], None]):
        self._number = _KERNELS.index(name)
        self._work = _c_function("void(int64, int64, int64)", work)
        _table[self._number] = self._work.address

    def __call__(
        self, arguments: Sequence[Any], results: Sequence[tuple[int, int]], most_parts: int, mode: int = 0
    ) -> Sequence[Any]:
        """The results, float32 of these shapes.

        Args:
          most_parts: how many parts are worth a thread of their own.
          mode: what the kernel gets from `mode`.
        """
        for x in arguments:
            assert (x.dtype, x.ndim) in ((np.int64, 1), (np.float32, 2)), f"a kernel cannot take {x.dtype}{x.shape}"
        shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in results]
        make = jax.ffi.ffi_call(_TARGET, shapes)
        numbers = {"kernel": self._number, "mode": mode, "most_parts": most_parts}  # XLA sorts them by name
        return make(*arguments, **{name: np.int64(number) for name, number in numbers.items()})


def _c_function(signature: str, function: Callable[..., Any]) -> Any:
    """Compiles, or takes what was compiled before from numba's cache.

    numba looks only whether the file of the function has changed. As it compiles what the function calls as well, its
    name in the cache tells what all files here were.
    """
    function.__qualname__ += f".{_SOURCES}"
    return cfunc(signature, cache=True, error_model="numpy")(function)


def _check_surroundings() -> None:
    """Raises ImportError unless numba compiles, and XLA's interface still has everything where it was."""
    if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
        raise ImportError("NUMBA_DISABLE_JIT is set")
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text(encoding="utf-8")
    major, minor = (int(n) for n in re.findall(r"#define XLA_FFI_API_(?:MAJOR|MINOR) (\d+)", header))
    if (major, minor) != (_MAJOR, _MINOR):
        raise ImportError(f"XLA's interface for them is {major}.{minor}, they are written for {_MAJOR}.{_MINOR}")


def _task(record):
    _work_and_leave(record, False)


def _handler(frame):
    if not _tells_version(frame):
        _work_and_leave(_begin(frame), True)
    return 0


def _register() -> None:
    """Makes the custom call known to XLA."""
    binding.add_symbol(_TABLE, ctypes.addressof(_table))

    task = _c_function("void(int64)", _task)
    binding.add_symbol(_TASK, task.address)
    handler = _c_function("int64(int64)", _handler)
    _kept_alive.extend([task, handler])
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    jax.ffi.register_ffi_target(_TARGET, capsule(handler.address, None, None), platform="cpu")


_check_surroundings()
_register()
