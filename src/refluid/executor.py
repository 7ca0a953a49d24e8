"""The executor: runs programs on feeds and gives fetches back.

The first run of a program with some feed shapes compiles it; later runs find the compiled step by program version, feed
shapes and dtypes, and fetch names, and only call it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np

from refluid import compilation, flags, profiling
from refluid.errors import FeedError, OpError, PaddingWarning, UninitializedError
from refluid.feeding import check_feed, read_feed, signature, with_feed_hint
from refluid.fetching import as_numpy, as_tensor, check_fetches, copied, fetch_names
from refluid.ir.block import Block
from refluid.ir.program import Program, default_main_program
from refluid.ir.vartype import VarType
from refluid.lowering.buckets import Buckets
from refluid.lowering.plan import talks
from refluid.lowering.ragged import PaddingError
from refluid.lowering.step import Step
from refluid.ops.core.values import to_dense
from refluid.places import CPUPlace, Place
from refluid.scope import Scope, global_scope


class Executor:
    """Runs programs at one place."""

    def __init__(self, place: Place | None = None, eager: bool = False):
        self.place = CPUPlace() if place is None else place
        self._device = self.place.device()
        self._eager = eager
        self._steps: dict[Any, Step] = {}
        self._hot: dict[Any, Step] = {}  # the same steps, by what a call looks like
        self._exact: set[int] = set()  # programs whose sequences must not be padded
        self._eager_loops: dict[int, frozenset[int]] = {}  # by program, the blocks of loops that cannot be compiled
        self._closed = False
        self._first_runs: dict[int, Any] = {}  # a lock per program: threads compile it once
        self.buckets = Buckets()

    def run(
        self,
        program: Any = None,
        feed: Mapping[str, Any] | None = None,
        fetch_list: Sequence[Any] | None = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> list[Any]:
        """Runs ``program`` once and returns the fetched values.

        Args:
          program: the program, or a CompiledProgram; by default the default main program.
          feed: variable name to array, list, LoDTensor or JAX array.
          fetch_list: variables or names.
          scope: where state lives; by default the global scope.
          return_numpy: NumPy arrays, or LoDTensors.
          use_program_cache: accepted; compiled steps are always kept.
        """
        if self._closed:
            raise RuntimeError("this executor is closed")
        if program is None:
            program = default_main_program()
        elif program.__class__ is not Program:
            program = _program_of(program)
        if scope is None:
            scope = global_scope()
        hot = None
        if feed is not None and feed.__class__ is dict and fetch_list.__class__ is list and return_numpy:
            # The call of a training loop, kept short: microseconds count for small models.
            values = list(feed.values())
            arrays = [(v.shape, v.dtype) for v in values if v.__class__ is np.ndarray]
            if len(arrays) == len(values):
                hot = (program.uid, program._version, id(scope), scope.epoch, *feed, *fetch_list, *arrays)  # pyright: ignore[reportOptionalIterable]
                step = self._hot.get(hot)
                if step is not None and not profiling.active() and not flags.check_nan_inf:
                    with jax.enable_x64(True):
                        return [copied(value) for value in step(values)]
        return self._run(program, feed, fetch_list, scope, return_numpy, hot)

    def _run(
        self, program: Program, feed: Any, fetch_list: Any, scope: Scope, return_numpy: bool, hot: Any
    ) -> list[Any]:
        exact = program.uid in self._exact
        names, values = read_feed(program, feed, self.buckets, exact) if feed else ((), ())
        fetches = fetch_names(fetch_list) if fetch_list is not None else ()
        key = (program.uid, program._version, names, signature(values), fetches, id(scope), scope.epoch)
        step = self._steps.get(key)
        # Programs keep their widths whatever the user's own JAX is set to.
        with jax.enable_x64(True), profiling.record("executor.run"):
            if step is None:
                try:
                    with self._first_runs.setdefault(program.uid, threading.RLock()):
                        step = self._steps.get(key)
                        if step is None:
                            results = self._first_run(key, program, names, values, fetches, scope)
                        else:  # another thread was faster
                            results = step(values)
                except PaddingError as error:
                    self._give_up_padding(program, error)
                    return self._run(program, feed, fetch_list, scope, return_numpy, None)
            else:
                with profiling.record("execute"):
                    results = step(values)
            step = step or self._steps[key]
            if flags.check_nan_inf:
                _check_numbers(program, step, results)
            if hot is not None and _all_arrays(results):
                self._hot[hot] = step
            with profiling.record("fetch"):
                read = as_numpy if return_numpy else as_tensor
                return [read(name, value) for name, value in zip(fetches, results, strict=True)]

    @property
    def compilations(self) -> int:
        """How many times this executor compiled something: a program for new shapes, or a piece of one."""
        return sum(step.compilations for step in self._steps.values())

    def close(self) -> None:
        """Releases compiled steps and tells other processes that this one is done; the executor cannot run any more."""
        for step in self._steps.values():
            step.close()
        self._steps.clear()
        self._hot.clear()
        self._closed = True

    def _first_run(self, key, program: Program, names, values, fetches, scope: Scope) -> list[Any]:
        block = program.global_block()
        check_feed(block, names, values)
        check_fetches(block, fetches, names, scope)
        padded = program.uid not in self._exact
        eager_loops = self._eager_loops.get(program.uid, frozenset())
        step = Step(block, names, fetches, scope, self.place, self._eager, padded, eager_loops)
        _check_reads(block, step, scope)
        cause = compilation.why_again(self._steps, key)
        announced = compilation.announced(program, cause, step.talks) if step.compiles else nullcontext()
        with announced, profiling.record("compile and execute"):
            try:
                results = step(values)
            except OpError as error:
                raise with_feed_hint(error, block, names, values) from error
        step._traced = True
        self._steps[key] = step
        return results

    def _give_up_padding(self, program: Program, error: PaddingError) -> None:
        if error.loop is not None:
            known = self._eager_loops.get(program.uid, frozenset())
            self._eager_loops[program.uid] = known | {error.loop.attrs["sub_block"].idx}
            if not error.misfit:
                warnings.warn(f"{error}, so the loop around it runs turn by turn", PaddingWarning, stacklevel=3)
            return
        self._exact.add(program.uid)
        if error.misfit:
            return
        warnings.warn(
            f"{error}, so sequences are not padded and the program is compiled for every new total length",
            PaddingWarning,
            stacklevel=3,
        )


def _program_of(program: Any) -> Program:
    inner = getattr(program, "_single_device_program", None)
    if inner is None:
        raise TypeError(f"an executor runs a Program or a CompiledProgram, not {type(program).__name__}")
    return inner()


def _all_arrays(results: Sequence[Any]) -> bool:
    return all(isinstance(value, jax.Array | np.ndarray) for value in results)


def _check_reads(block: Block, step: Step, scope: Scope) -> None:
    """Everything the block reads from outside must have a value."""
    for name in step.reads:
        held = scope.find_var(name)
        if held is not None and held.value is not None:
            continue
        variable = block.find_var_recursive(name)
        if variable is not None and variable.type in (VarType.LOD_TENSOR_ARRAY, VarType.RAW):
            continue  # an array of tensors begins empty, and what is RAW belongs to a kernel of real Fluid
        readers = [op for op in block.ops if name in op.input_arg_names]
        if readers and all(talks(op) for op in readers):
            continue  # the exchange knows what it needs
        reader = readers[0] if readers else None
        by = "the fetch list" if reader is None else f"{reader.type} ({reader.written_at})"
        if variable is not None and variable.is_data:
            raise FeedError(name, f"it must be fed: {by} reads it", f"add '{name}' to the feed")
        if variable is not None and variable.persistable:
            hint = "run the startup program first, or load the parameters"
            raise UninitializedError(name, by, hint)
        raise UninitializedError(name, by, "no op writes it before, it is not fed, and the scope does not have it")


def _check_numbers(program: Program, step: Step, results: Sequence[Any]) -> None:
    """FLAGS_check_nan_inf: every fetched and every written floating-point value must be finite."""
    written = ((name, holder.value) for name, holder in step.holders.items() if name in step.persists)
    for name, value in (*zip(step.fetches, results, strict=True), *written):
        array = np.asarray(to_dense(value))
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            writers = [op for op in program.global_block().ops if name in op.output_arg_names]
            by = f", written by {writers[-1].type} ({writers[-1].written_at})" if writers else ""
            raise FloatingPointError(f"FLAGS_check_nan_inf: {name} holds NaN or Inf{by}")
