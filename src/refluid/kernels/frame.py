"""XLA's C interface for foreign functions, as far as kernels need it.

``frame`` is the address of XLA's call frame. `integers`, `argument` and `result` return what it holds as arrays.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
from numba import carray, njit  # pyright: ignore[reportPrivateImportUsage]

from refluid.kernels.memory import call, float32_at, int64_at

_MAJOR, _MINOR = 0, 3  # the version of the interface that the numbers below belong to
# The offsets of the fields that we use, in words of 8 bytes: in XLA_FFI_CallFrame, XLA_FFI_Buffer, XLA_FFI_Api ...
_EXTENSION, _API, _CONTEXT, _ARGUMENT_COUNT, _ARGUMENTS, _RESULTS, _ATTRIBUTES = 1, 2, 3, 7, 9, 14, 20
_DATA, _RANK, _DIMS = 3, 4, 5
_DESTROY_ERROR, _SCHEDULE, _COUNT_THREADS = 8, 17, 18
# ... in XLA_FFI_Metadata_Extension, XLA_FFI_Metadata and XLA_FFI_Scalar.
_METADATA, _VERSION, _VALUE = 3, 3, 1
_METADATA_TYPE = 1  # the type of that extension

ATTRIBUTES = ("kernel", "mode", "most_parts")  # of every call, all int64. XLA sorts them by name.
# Which kernel is called, the mode it is called in, and how many parts are worth a thread of their own.
KERNEL, MODE, MOST_PARTS = range(3)
REQUEST_SIZE = 5  # words that a request to XLA takes

compiled = njit(error_model="numpy")


@compiled
def words(address, number) -> Any:
    """The memory at an address as a vector of int64."""
    return carray(int64_at(address), (number,))


@compiled
def word(address, index) -> Any:
    """The int64 at word ``index`` from an address."""
    return words(address, index + 1)[index]


@compiled
def argument_count(frame):
    """How many arguments there are."""
    return word(frame, _ARGUMENT_COUNT)


@compiled
def integers(frame, index):
    """The argument with that number, a vector of int64."""
    buffer = word(word(frame, _ARGUMENTS), index)
    return words(word(buffer, _DATA), word(word(buffer, _DIMS), 0))


@compiled
def _matrix(buffer):
    dims, width = word(buffer, _DIMS), 1
    for i in range(1, word(buffer, _RANK)):
        width *= word(dims, i)
    return carray(float32_at(word(buffer, _DATA)), (word(dims, 0), width))


@compiled
def argument(frame, index):
    """The float32 argument with that number as a matrix: all dims after the first are merged."""
    return _matrix(word(word(frame, _ARGUMENTS), index))


@compiled
def result(frame, index):
    """The float32 result with that number, as a matrix."""
    return _matrix(word(word(frame, _RESULTS), index))


@compiled
def attribute(frame, index):
    """The attribute with that number: KERNEL, MODE or MOST_PARTS."""
    return word(word(word(word(frame, _ATTRIBUTES), index), _VALUE), 0)


@compiled
def call_site(frame):
    """A number that identifies the calling operation in the compiled program."""
    return word(frame, _ATTRIBUTES)


@compiled
def reports_version(frame):
    """Reports the version of the interface if this call requests nothing else; returns whether it does."""
    extension = word(frame, _EXTENSION)
    if extension == 0 or word(extension, 1) & 0xFFFFFFFF != _METADATA_TYPE:
        return False
    words(word(extension, _METADATA), _VERSION + 1)[_VERSION] = _MAJOR | _MINOR << 32
    return True


@compiled
def _call_api(frame, function, request, first, second):
    """Calls a function of XLA's with a structure built at ``request``; returns whether it succeeded."""
    structure = words(request, REQUEST_SIZE)
    structure[0], structure[1], structure[2], structure[3], structure[4] = 40, 0, word(frame, _CONTEXT), first, second
    api = word(frame, _API)
    error = call(word(api, function), request)
    if error != 0:
        structure[0], structure[2] = 24, error
        call(word(api, _DESTROY_ERROR), request)
    return error == 0


@compiled
def count_threads(frame, request, place):
    """Writes the number of threads in XLA's pool to ``place``; returns whether it succeeded.

    ``request`` is the address of REQUEST_SIZE words of scratch memory.
    """
    return _call_api(frame, _COUNT_THREADS, request, place, 0)


@compiled
def schedule(frame, request, task, data):
    """Schedules the function at ``task`` on a thread of XLA's pool, with ``data``; returns whether it succeeded."""
    return _call_api(frame, _SCHEDULE, request, task, data)


def check_version() -> None:
    """Raises ImportError if XLA's interface has another version."""
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text(encoding="utf-8")
    major, minor = (int(n) for n in re.findall(r"#define XLA_FFI_API_(?:MAJOR|MINOR) (\d+)", header))
    if (major, minor) != (_MAJOR, _MINOR):
        raise ImportError(f"XLA's FFI has version {major}.{minor}; the kernels are written for {_MAJOR}.{_MINOR}")
