"""Compilation as users see it: the persistent cache, messages about slow compilations, and causes of recompilation."""

from __future__ import annotations

import hashlib
import os
import platform
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jax

from refluid.errors import RecompileWarning
from refluid.ir.program import Program
from refluid.log import Log

if TYPE_CHECKING:
    from refluid.lowering.step import StepKey

ANNOUNCE_AFTER = 3.0  # seconds before a compilation is announced
_EXPECTED_SHAPES = 2  # of full batches, and of the last batch of an epoch


@cache
def enable_persistent_cache() -> None:
    """Enables JAX's persistent cache in the user's cache folder, unless the user configured or disabled it.

    REFLUID_CACHE_DIR names another folder; an empty value disables the cache.
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
    """Identifies the CPU: code compiled for one may not run on another that shares the folder."""
    try:
        text = Path("/proc/cpuinfo").read_text()
        flags = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:8]}"


@contextmanager
def announced(program: Program, cause: str | None, communicates: bool) -> Iterator[None]:
    """Warns about an unexpected compilation, and reports one that takes long.

    Args:
      communicates: whether part of the time may be spent waiting for other processes.
    """
    enable_persistent_cache()
    if cause:
        # Seven frames up is the caller of Executor.run.
        warnings.warn(f"the program is compiled again: {cause}", RecompileWarning, stacklevel=7)
    ops = sum(len(block.ops) for block in program.blocks)
    log, reported = Log("compiler"), threading.Event()

    def report():
        reported.set()
        waiting = ", or waiting for other processes" if communicates else ""
        log.info(f"compiling a program, once for these shapes{waiting} ...", ops=ops)

    timer = threading.Timer(ANNOUNCE_AFTER, report)
    timer.daemon = True
    timer.start()
    started = time.perf_counter()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if reported.is_set():
            log.info("done" if communicates else "compiled", seconds=round(time.perf_counter() - started, 1))


def why_again(before: Sequence[StepKey], key: StepKey) -> str | None:
    """What makes ``key`` differ from steps of a program compiled ``before``; None if a compilation is no surprise."""
    if not before:
        return None
    if all(other.version != key.version for other in before):
        return "it was changed after it had been compiled (an op, a variable or the seed)"
    alike = [other for other in before if other._replace(signature=key.signature, padded=key.padded) == key]
    if not alike:
        return None
    feeds = list(zip(key.feeds, key.signature, alike[-1].signature, strict=True))
    for name, (_, dtype, *_), (_, dtype_before, *_) in feeds:
        if dtype != dtype_before:
            return f"feed {name} changed from {dtype_before} to {dtype}"
    shapes = {_batch_shapes(other) for other in alike}  # buckets of sequences settle by themselves
    if len(shapes) < _EXPECTED_SHAPES or _batch_shapes(key) in shapes:
        return None
    for name, (shape, _, *sequences), (shape_before, *_) in feeds:
        if shape != shape_before and not sequences:
            return (
                f"feed {name} has shape {list(shape)}, after {list(shape_before)} and {len(shapes) - 1} other shapes; "
                "batches of one size (drop_last=True) avoid it"
            )
    return None


def _batch_shapes(key: StepKey) -> tuple[tuple[int, ...], ...]:
    """The shapes of feeds that are no sequences."""
    return tuple(shape for shape, _, *sequences in key.signature if not sequences)
