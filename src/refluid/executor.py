"""The executor: runs programs on feeds and gives fetches back.

The first run of a program with some feed shapes compiles it; later runs find the compiled step by program version, feed
shapes and dtypes, and fetch names, and only call it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from refluid import compilation, flags, profiling
from refluid.errors import FeedError, FetchError, OpError, UninitializedError
from refluid.ir.block import Block
from refluid.ir.program import Program, default_main_program
from refluid.ir.variable import Variable, name_of
from refluid.ir.vartype import as_numpy
from refluid.lowering.step import Step
from refluid.ops.values import SelectedRows, to_dense
from refluid.places import CPUPlace, Place
from refluid.scope import Scope, global_scope
from refluid.tensors import LoDTensor, SelectedRowsTensor


class Executor:
    """Runs programs at one place."""

    def __init__(self, place: Place | None = None, eager: bool = False):
        self.place = CPUPlace() if place is None else place
        self._device = self.place.device()
        self._eager = eager
        self._steps: dict[Any, Step] = {}
        self._closed = False

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
        names, values = _read_feed(program, feed) if feed else ((), ())
        fetches = _fetch_names(fetch_list) if fetch_list is not None else ()
        signature = tuple([(value.shape, value.dtype) for value in values])
        key = (program.uid, program._version, names, signature, fetches, id(scope), scope.epoch)
        step = self._steps.get(key)
        # Programs keep their widths whatever the user's own JAX is set to.
        with jax.enable_x64(True), profiling.record("executor.run"):
            if step is None:
                results = self._first_run(key, program, names, values, fetches, scope)
            else:
                with profiling.record("execute"):
                    results = step(values)
            if flags.check_nan_inf:
                _check_numbers(program, step or self._steps[key], results)
            with profiling.record("fetch"):
                read = _as_numpy if return_numpy else _as_tensor
                return [read(name, value) for name, value in zip(fetches, results, strict=True)]

    def close(self) -> None:
        """Releases compiled steps; the executor cannot run any more."""
        self._steps.clear()
        self._closed = True

    def _first_run(self, key, program: Program, names, values, fetches, scope: Scope) -> list[Any]:
        block = program.global_block()
        _check_feed(block, names, values)
        _check_fetches(block, fetches, names, scope)
        step = Step(block, names, fetches, scope, self.place, self._eager)
        _check_reads(block, step, scope)
        cause = compilation.why_again(self._steps, key)
        with compilation.announced(program, cause), profiling.record("compile and execute"):
            try:
                results = step(values)
            except OpError as error:
                raise _with_feed_hint(error, block, names, values) from error
        step._traced = True
        self._steps[key] = step
        return results


def _read_feed(program: Program, feed: Mapping[str, Any]) -> tuple[tuple[str, ...], list[Any]]:
    if not isinstance(feed, Mapping):
        raise TypeError(f"feed must be a dict of name to value, not {type(feed).__name__}")
    values = list(feed.values())
    for i, (name, value) in enumerate(feed.items()):
        if value.__class__ is not np.ndarray:
            values[i] = _feed_value(program.global_block(), name, value)
    return tuple(feed), values


def _program_of(program: Any) -> Program:
    inner = getattr(program, "_single_device_program", None)
    if inner is None:
        raise TypeError(f"an executor runs a Program or a CompiledProgram, not {type(program).__name__}")
    return inner()


def _feed_value(block: Block, name: str, value: Any) -> Any:
    """Lists and scalars take the variable's dtype; tensors give their array."""
    if isinstance(value, LoDTensor):
        if value.value is None:
            raise FeedError(name, "the LoDTensor holds no value")
        return value.value
    if isinstance(value, np.ndarray | jax.Array):
        return value
    variable = block.vars.get(name)
    dtype = None if variable is None else as_numpy(variable.dtype)
    try:
        return np.array([value] if np.isscalar(value) else value, dtype)
    except (ValueError, TypeError) as error:
        raise FeedError(name, f"the value cannot be made an array of {dtype}: {error}") from error


def _fetch_names(fetch_list: Any) -> tuple[str, ...]:
    if isinstance(fetch_list, str | Variable):
        fetch_list = [fetch_list]
    if not isinstance(fetch_list, list | tuple):
        raise TypeError(f"fetch_list is a list of variables or names, not {type(fetch_list).__name__}")
    return tuple([item if item.__class__ is str else _fetch_name(item) for item in fetch_list])


def _fetch_name(item: Any) -> str:
    if not isinstance(item, str | Variable):
        raise TypeError(f"fetch_list holds variables or names, not {type(item).__name__}")
    return name_of(item)


def _check_feed(block: Block, names: Sequence[str], values: Sequence[Any]) -> None:
    for name, value in zip(names, values, strict=True):
        variable = block.vars.get(name)
        if variable is None:
            near = difflib.get_close_matches(name, [v.name for v in block.vars.values() if v.is_data], n=1)
            raise FeedError(name, "the program has no such variable", f"did you mean {near[0]}?" if near else None)
        expected = as_numpy(variable.dtype)
        if not _accepts(expected, value.dtype, strict=variable.need_check_feed):
            raise FeedError(
                name,
                f"expected {expected}{list(variable.shape)}, got {value.dtype}{list(value.shape)}",
                f"convert the array with .astype('{expected}')",
            )
        if variable.need_check_feed and not _fits(value.shape, variable):
            raise FeedError(
                name,
                f"expected shape {list(variable.shape)}, got {list(value.shape)}",
                "a dim of -1 takes any size; the batch comes first",
            )


def _accepts(expected: np.dtype, given: np.dtype, strict: bool) -> bool:
    """Whether a fed dtype will do. ``fluid.data`` insists; ``layers.data`` lets integers through as they are.

    Scripts declare labels without a dtype (so float32) and feed int64; real Fluid runs them.
    """
    if given == expected:
        return True
    if strict or given.kind not in "iub":
        return False
    return expected.kind == "f" or np.can_cast(given, expected, "safe")


def _with_feed_hint(error: OpError, block: Block, names: Sequence[str], values: Sequence[Any]) -> OpError:
    """``layers.data`` takes any shape, as in real Fluid; when an op then fails, the odd feed is worth a hint."""
    odd = [
        f"{name} was declared {list(block.vars[name].shape)} and fed {list(value.shape)}"
        for name, value in zip(names, values, strict=True)
        if not _fits(value.shape, block.vars[name])
    ]
    if not odd or error.hint or type(error) is not OpError:
        return error
    return OpError(error.op_type, error.problem, error.arguments, error.attrs, error.written_at, "; ".join(odd))


def _fits(shape: Sequence[int], variable: Variable) -> bool:
    if len(shape) != len(variable.shape):
        return False
    return all(want < 0 or have == want for have, want in zip(shape, variable.shape, strict=True))


def _check_fetches(block: Block, fetches: Sequence[str], feeds: Sequence[str], scope: Scope) -> None:
    written = {name for op in block.ops for name in op.output_arg_names}
    for name in fetches:
        if name in written or name in feeds:
            continue
        if block.find_var_recursive(name) is None:
            near = difflib.get_close_matches(name, list(block.vars), n=1)
            raise FetchError(name, "the program has no such variable", f"did you mean {near[0]}?" if near else None)
        held = scope.find_var(name)
        if held is None or held.value is None:
            raise FetchError(name, "no op of the program computes it and the scope has no value for it")


def _check_reads(block: Block, step: Step, scope: Scope) -> None:
    """Everything the block reads from outside must have a value."""
    for name in step.reads:
        held = scope.find_var(name)
        if held is not None and held.value is not None:
            continue
        reader = next((op for op in block.ops if name in op.input_arg_names), None)
        by = "the fetch list" if reader is None else f"{reader.type} ({reader.written_at})"
        variable = block.find_var_recursive(name)
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


def _as_numpy(name: str, value: Any) -> Any:
    if isinstance(value, SelectedRows):
        raise RuntimeError(f"fetch {name}: selected rows cannot become a NumPy array; pass return_numpy=False")
    return np.asarray(value).copy()  # twice as fast as np.array(value)


def _as_tensor(name: str, value: Any) -> Any:
    if isinstance(value, SelectedRows):
        return SelectedRowsTensor.of(value)
    return LoDTensor(jax.block_until_ready(value))
