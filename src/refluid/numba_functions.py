"""Functions compiled by numba: kernels, which are cached on disk, and the parts that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit  # pyright: ignore[reportPrivateImportUsage]

Decorator = Callable[[Callable[..., Any]], Any]


def functions_in(file: str) -> tuple[Callable[[str], Decorator], Decorator]:
    """The decorators ``kernel(signature)`` and ``part`` for the functions in the folder of a file.

    A kernel is compiled for its signature when it is first called, or loaded from numba's cache; it runs without the
    interpreter lock. A part is compiled into each kernel that calls it.
    """
    # numba's cache is keyed by the file of a function alone, but its code includes what the function calls. So the name
    # of a kernel includes a hash of all files in the folder.
    sources = sha256(b"".join(p.read_bytes() for p in sorted(Path(file).parent.glob("*.py")))).hexdigest()[:8]

    def kernel(signature: str) -> Decorator:
        def prepare(function: Callable[..., Any]) -> Any:
            function.__qualname__ += f".{sources}"
            compiled = cache(lambda: _compile(signature, function))
            return lambda *arguments: compiled()(*arguments)

        return prepare

    return kernel, njit(forceinline=True, nogil=True, error_model="numpy")


def _compile(signature: str, function: Callable[..., Any]) -> Any:
    try:
        return njit(signature, cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return njit(signature, nogil=True, error_model="numpy")(function)  # no folder is writable
