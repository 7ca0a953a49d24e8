"""Compilation as users see it: the persistent cache, announcements of slow compiles, and reasons for recompiling."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax

from refluid.errors import RecompileWarning
from refluid.ir.program import Program

ANNOUNCE_AFTER = 3.0  # seconds a compilation may take in silence
_EXPECTED_SHAPES = 2  # full batches, and the last one of an epoch

compilations = 0  # how many steps were compiled in this process


@cache
def enable_persistent_cache() -> None:
    """Points JAX at a cache in the user's cache folder, unless the user chose one or switched it off.

    REFLUID_CACHE_DIR names another folder; an empty value switches the cache off.
    """
    if jax.config.values.get("jax_compilation_cache_dir"):
        return
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = os.environ.get("REFLUID_CACHE_DIR", str(Path(home) / "refluid" / "xla" / _machine()))
    if not folder:
        return
    jax.config.update("jax_compilation_cache_dir", folder)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _machine() -> str:
    """Code compiled for one CPU may not run on another that shares the folder."""
    try:
        text = Path("/proc/cpuinfo").read_text()
        flags = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:8]}"


@contextmanager
def announced(program: Program, cause: str | None, talks: bool) -> Iterator[None]:
    """Counts a compilation, warns when it is an unexpected one, and tells the user when it takes long.

    Args:
      talks: whether part of the time may be spent waiting for other processes.
    """
    global compilations
    enable_persistent_cache()
    compilations += 1
    if cause:
        warnings.warn(f"the program is compiled again: {cause}", RecompileWarning, stacklevel=4)
    ops = sum(len(block.ops) for block in program.blocks)
    said = threading.Event()

    def say():
        said.set()
        waiting = ", or waiting for other processes" if talks else ""
        text = f"refluid: compiling a program of {ops} ops, once for these shapes{waiting} ..."
        print(text, file=sys.stderr, flush=True)

    timer = threading.Timer(ANNOUNCE_AFTER, say)
    timer.daemon = True
    timer.start()
    started = time.perf_counter()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if said.is_set():
            done = "done after" if talks else "compiled in"
            print(f"refluid: {done} {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)


def why_again(steps: Mapping[Any, Any], key: Any) -> str | None:
    """What makes ``key`` differ from the steps already compiled, or None where a compilation is no surprise."""
    uid, version, names, signature, fetches, scope, _ = key
    same_program = [k for k in steps if k[0] == uid and k[5] == scope]
    if not same_program:
        return None
    if all(k[1] != version for k in same_program):
        return "it was changed after it had been compiled (an op, a variable or the seed)"
    alike = [k for k in same_program if k[1] == version and k[2] == names and k[4] == fetches]
    for name, (_, dtype, *_), before in zip(names, signature, alike[-1][3] if alike else (), strict=False):
        if dtype != before[1]:
            return f"feed {name} changed from {before[1]} to {dtype}"
    if len(alike) < _EXPECTED_SHAPES:
        return None
    for name, (shape, _, *sequences), before in zip(names, signature, alike[-1][3], strict=True):
        if shape != before[0] and not sequences:  # their padded sizes settle by themselves
            return (
                f"feed {name} has shape {list(shape)}, after {list(before[0])} and {len(alike) - 1} other shapes; "
                "batches of one size (drop_last=True) avoid it"
            )
    return None
