"""The executor: runs programs on feeds and returns fetches.

The first run of a program with some feed shapes compiles it, once for all scopes; later runs find the compiled step by
program version, feed shapes and dtypes, and fetch names, and only call it.
"""

from __future__ import annotations

import itertools
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import jax
import numpy as np

from refluid import backend, compilation, flags, profiling
from refluid.announced import Announced, Following, announce
from refluid.dataset_runs import Reports, run_dataset, without_training
from refluid.errors import FeedError, OpError, PaddingWarning, UninitializedError
from refluid.feeding import check_feed, plain_feed, read_feed, signature, with_feed_hint
from refluid.fetching import as_numpy, as_tensor, check_fetches, copied, fetch_names
from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.program import Program, default_main_program
from refluid.ir.vartype import VarType
from refluid.jobs import begin, exchanges_rows, is_of_job, meets_others, take_part
from refluid.lowering.buckets import Buckets
from refluid.lowering.lowered import lowered
from refluid.lowering.pieces import Count
from refluid.lowering.plan import communicates
from refluid.lowering.ragged import PaddingError
from refluid.lowering.step import CompiledStep, Step, StepKey
from refluid.ops.core.values import to_dense
from refluid.places import CPUPlace, Place, check_place
from refluid.reading import peek_batches, reading_of, take_batches
from refluid.scope import Scope, global_scope
from refluid.splitting import merged, read_feeds, separate, split_feed
from refluid.tensors import RemoteArray

_uids = itertools.count()
_executors: WeakSet[Executor] = WeakSet()
_NONE: frozenset[int] = frozenset()
_REMEMBERED = 64  # compilations of a program that another one is compared with, to say why it happens


class Executor:
    """Runs programs at one place."""

    def __init__(self, place: Place | None = None, eager: bool = False):
        self.place: Place = CPUPlace() if place is None else place
        check_place(self.place, "Executor")
        self._target: backend.Target | None = None
        self._uid = next(_uids)
        self._eager = eager
        self._exact: WeakSet[Program] = WeakSet()  # programs whose sequences must not be padded
        self._eager_loops: WeakKeyDictionary[Program, frozenset[int]] = WeakKeyDictionary()  # blocks of loops
        self._communicating: set[CompiledStep] = set()  # steps that exchange values with other processes
        self._count = Count()
        self._compiled: WeakKeyDictionary[Program, deque[StepKey]] = WeakKeyDictionary()  # what was compiled lately
        self._closed = False
        self.buckets = Buckets()
        _executors.add(self)

    @property
    def target(self) -> backend.Target:
        """Where steps run. Looked up when it is needed: JAX starts then, which processes that join want to do first."""
        if self._target is None:
            self._target = backend.target(self.place.device())
        return self._target

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
          return_numpy: whether to return NumPy arrays rather than LoDTensors.
          use_program_cache: ignored; compiled steps are always kept.
        """
        program = self._program(program)
        if scope is None:
            scope = global_scope()
        call = None
        if isinstance(feed, dict) and fetch_list.__class__ is list and return_numpy and return_merged:
            # The fast path of a training loop: microseconds count for small models.
            values = list(feed.values())
            arrays = [(v.shape, v.dtype) for v in values if v.__class__ is np.ndarray]
            if len(arrays) == len(values):
                call = (self._uid, program._version, scope.uid, scope.epoch, *feed, *fetch_list, *arrays)  # pyright: ignore[reportOptionalIterable]
                kept = program.lowered
                step = None if kept is None else kept.by_call.get(call, _no_step)()
                if step is not None and profiling.recorder is None and not flags.check_nan_inf:
                    if step.expects and isinstance(feed, Announced):
                        announce(feed.following, step)
                    with jax.enable_x64(True):
                        return [copied(value) for value in step(values)]
        return self._run(program, feed, fetch_list, scope, return_numpy, return_merged, call)

    def _program(self, program: Any) -> Program:
        if self._closed:
            raise RuntimeError("this executor is closed")
        if program.__class__ is Program:
            return program
        return default_main_program() if program is None else _program_of(program)

    def _run(
        self,
        program: Program,
        feed: Any,
        fetch_list: Any,
        scope: Scope,
        return_numpy: bool,
        return_merged: bool,
        call: Any,
    ) -> list[Any]:
        if program._trainers_endpoints and program.target is None and is_of_job(program) and meets_others(program):
            take_part(program, self.place)
        how = {"scope": scope, "return_numpy": return_numpy, "return_merged": return_merged}
        plainer = plain_feed(feed) if program.target is None else None
        if plainer is not None:
            return self.run(program, plainer, fetch_list, **how)
        reading = reading_of(program)
        if reading.makers:
            reading.prepare(scope)
        missing = reading.missing(feed)
        if missing:
            return self.run(program, _with_batches(program, missing, feed, scope), fetch_list, **how)
        fetches = fetch_names(fetch_list) if fetch_list is not None else ()
        key, values = self.prepare(program, feed, fetches, scope)
        # Programs keep their widths whatever the user's own JAX is set to.
        with jax.enable_x64(True), profiling.record("executor.run"):
            try:
                step, results = self.find_and_run(program, key, scope, values, getattr(feed, "following", None))
            except PaddingError as error:
                self.give_up_padding(program, error)
                return self._run(program, feed, fetch_list, scope, return_numpy, return_merged, None)
            if call is not None and _all_arrays(results) and not _agrees_on_sizes(program):
                lowered(program).remember_call(call, step)
            with profiling.record("fetch"):
                if program.target is not None:
                    read = partial(
                        merged if return_merged else separate, target=program.target, return_numpy=return_numpy
                    )
                else:
                    read = as_numpy if return_numpy else as_tensor
                return [read(name, value) for name, value in zip(fetches, results, strict=True)]

    def train_from_dataset(
        self,
        program: Any = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Any = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """Trains on every batch of a dataset, in one pass.

        Real Fluid trains in ``thread`` threads at once, which overwrite each other's parameters. Here batches are
        trained one after the other, each by one compiled step that uses all cores, and ``thread`` threads read and
        parse the next batches meanwhile. A log line every few seconds says how fast it is and where the time goes.

        Args:
          program: the program, or a CompiledProgram; by default the default main program.
          dataset: made by `fluid.DatasetFactory`.
          scope: where state lives; by default the global scope.
          thread: how many threads read; by default what the dataset was told.
          debug: print times and the rate every 100 batches.
          fetch_list: variables or names to print.
          fetch_info: a text for each of them, printed before it; by default its name.
          print_period: how many batches apart the fetches are printed.
          fetch_handler: a `fluid.executor.FetchHandler`, called every few seconds on a thread of its own.
        """
        reports = Reports.of(fetch_list, fetch_info, print_period, debug, fetch_handler)
        program = self._program(_described(program))
        run_dataset(self, "train_from_dataset", program, dataset, scope, thread, reports)

    def infer_from_dataset(
        self,
        program: Any = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Any = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """Runs the forward part of a program on every batch of a dataset; see `train_from_dataset`.

        Backward and optimizer ops of a training program are left out, and nothing is pushed to servers. Other state,
        such as that of metrics, changes as the program says.
        """
        reports = Reports.of(fetch_list, fetch_info, print_period, debug, fetch_handler)
        program = without_training(self._program(_described(program)))
        run_dataset(self, "infer_from_dataset", program, dataset, scope, thread, reports)

    def prepare(self, program: Program, feed: Any, fetches: tuple[str, ...], scope: Scope) -> tuple[StepKey, list[Any]]:
        """Returns the key of the step for a feed, and the values that the step takes; padding is part of both."""
        exact = program in self._exact
        target: Any = program.target or self.target
        read = read_feed if program.target is None else read_feeds
        names, values = read(program, feed, target, self.buckets, exact) if feed else ((), [])
        key = StepKey(
            program._version,
            names,
            signature(values),
            fetches,
            target.key,
            self._eager,
            not exact,
            self._eager_loops.get(program, _NONE),
            scope.remote,
        )
        return key, values

    @property
    def compilations(self) -> int:
        """How many times this executor compiled something: a program for new shapes, or a piece of one."""
        return self._count.total

    def close(self) -> None:
        """Leaves the jobs this executor takes part in; it cannot run any more afterwards."""
        for compiled in self._communicating:
            for step in list(compiled.bound.values()):
                step.close()
            compiled.bound.clear()  # the next executor begins with exchanges of its own
        self._communicating.clear()
        self._closed = True

    def find_and_run(
        self, program: Program, key: StepKey, scope: Scope, values: Sequence[Any], following: Following | None = None
    ) -> tuple[Step, list[Any]]:
        """Runs the step of a key, which is compiled and bound to the scope first where it is new.

        ``following`` returns the next feed, for what the step requests early.
        """
        kept = program.lowered or lowered(program)
        compiled = kept.steps.get(key)
        step = None if compiled is None else compiled.step_in(scope)
        if step is None:
            with kept.first_run:
                compiled = kept.steps.get(key)  # another thread may have been faster
                step = None if compiled is None else compiled.step_in(scope)
                if step is None:
                    return self._first_run(program, key, compiled, scope, values)
        if step.expects and following is not None:
            announce(following, step)
        with profiling.record("execute"):
            results = step(values)
        self._ran(program, step, results)
        return step, results

    def _ran(self, program: Program, step: Step, results: Sequence[Any]) -> None:
        if step.compiled.communicates:
            self._communicating.add(step.compiled)
        if flags.check_nan_inf:
            _check_numbers(program, step, results)

    def _first_run(
        self, program: Program, key: StepKey, compiled: CompiledStep | None, scope: Scope, values: Sequence[Any]
    ) -> tuple[Step, list[Any]]:
        block, kept = program.global_block(), lowered(program)
        check_fetches(block, key.fetches, key.feeds, scope)
        announced, before = nullcontext(), None
        if compiled is None:
            check_feed(block, key.feeds, values)
            compiled = CompiledStep(
                block,
                key.feeds,
                key.fetches,
                self.place,
                target=program.target,
                eager=key.eager,
                padded=key.padded,
                eager_loops=key.eager_loops,
                remote=key.remote,
                count=self._count,
            )
            if compiled.compiles:
                before = self._compiled.setdefault(program, deque(maxlen=_REMEMBERED))
                announced = compilation.announced(program, compilation.why_again(before, key), compiled.communicates)
        _check_reads(block, compiled, scope)
        _check_writes(block, compiled, scope)
        step = compiled.bind(scope)
        begin(program, step.holders)
        with announced, profiling.record("compile and execute"):
            try:
                results = step(values)
            except OpError as error:
                raise with_feed_hint(error, block, key.feeds, values) from error
        if before is not None:
            before.append(key)
        kept.steps.add(key, compiled)
        compiled.bound[scope] = step
        self._ran(program, step, results)
        return step, results

    def gave_up(self, program: Program, key: StepKey) -> bool:
        """Whether padding, or compiling a loop, was given up since the key was made."""
        loops = self._eager_loops.get(program, _NONE)
        return key.eager_loops != loops or key.padded == (program in self._exact)

    def give_up_padding(self, program: Program, error: PaddingError) -> None:
        """Remembers that sequences of a program, or in one of its loops, must not be padded, and says why."""
        if error.loop is not None:
            known = self._eager_loops.get(program, _NONE)
            self._eager_loops[program] = known | {error.loop.attrs["sub_block"].idx}
            if not error.misfit:
                warnings.warn(
                    f"{error}, so the loop around it runs iteration by iteration", PaddingWarning, stacklevel=4
                )
            return
        self._exact.add(program)
        if error.misfit:
            return
        warnings.warn(
            f"{error}, so sequences are not padded and the program is compiled for every new total length",
            PaddingWarning,
            stacklevel=4,
        )


def _forget_devices() -> None:
    for executor in _executors:
        executor._target = None
        executor._uid = next(_uids)  # so that no step of the old devices is found


backend.at_restart(_forget_devices)


def _described(program: Any) -> Any:
    """The program that a CompiledProgram was made of: passes over datasets run it on one device, as in real Fluid."""
    return getattr(program, "program", program)


def _agrees_on_sizes(program: Program) -> bool:
    """Whether processes agree on the sizes of feeds before each step."""
    return program.target is not None and program.target.meeting is not None and exchanges_rows(program)


def _no_step() -> None:
    """Stands for the weak reference of a call that is new."""


def _program_of(program: Any) -> Program:
    inner = getattr(program, "_program_to_run", None)
    if inner is None:
        raise TypeError(f"Executor.run takes a Program or a CompiledProgram, not {type(program).__name__}")
    return inner()


def _with_batches(program: Program, ops: Sequence[Operator], feed: Any, scope: Scope) -> Any:
    """The feed, with the next batches of `read` operators; one for each replica."""
    if program.target is None:
        return Announced({**take_batches(ops, scope), **(feed or {})}, partial(peek_batches, ops, scope))
    feeds = feed if isinstance(feed, list | tuple) else split_feed(program, feed or {}, program.target.local)
    return [{**take_batches(ops, scope), **each} for each in feeds]


def _all_arrays(results: Sequence[Any]) -> bool:
    return all(isinstance(value, jax.Array | np.ndarray) for value in results)


def _check_reads(block: Block, step: CompiledStep, scope: Scope) -> None:
    """Raises unless everything the block reads from outside has a value."""
    for name in step.reads:
        held = scope.find_var(name)
        if held is not None and held.value is not None:
            continue
        variable = block.find_var_recursive(name)
        if variable is not None and variable.type in (VarType.LOD_TENSOR_ARRAY, VarType.RAW):
            continue  # an array of tensors starts empty, and RAW variables belong to kernels of real Fluid
        readers = [op for op in block.ops if name in op.input_arg_names]
        if readers and all(communicates(op) for op in readers):
            continue  # the exchange checks its own inputs
        if readers and all(_begins_without(op, name) for op in readers):
            continue
        reader = readers[0] if readers else None
        by = "the fetch list" if reader is None else f"{reader.type} ({reader.written_at})"
        if variable is not None and variable.is_data:
            raise FeedError(name, f"it must be fed: {by} reads it", f"add '{name}' to the feed")
        if variable is not None and variable.persistable:
            hint = "run the startup program first, or load the parameters"
            raise UninitializedError(name, by, hint)
        raise UninitializedError(name, by, "no earlier op writes it, it is not fed, and the scope has no value for it")


def _begins_without(op: Operator, name: str) -> bool:
    """Whether a variable is state of an operator on the host, which need not be there before its first run."""
    slots = {slot.name: slot for slot in op.definition.inputs}
    reads = [slot for slot, names in op.inputs.items() if name in names]
    return op.definition.host is True and name in op.output_arg_names and all(slots[slot].optional for slot in reads)


def _check_writes(block: Block, step: CompiledStep, scope: Scope) -> None:
    """Raises if the block overwrites what other processes hold. Exchanges know what they do."""
    exchanged = {name for op in block.ops if communicates(op) for name in op.output_arg_names}
    for name in step.remote_writes - exchanged:
        writer = next(op for op in block.ops if name in op.output_arg_names)
        scope.var(name).get_tensor().check_writable(f"what {writer.type} writes ({writer.written_at})")


def _check_numbers(program: Program, step: Step, results: Sequence[Any]) -> None:
    """FLAGS_check_nan_inf: every fetched and every written floating-point value must be finite."""
    compiled = step.compiled
    written = ((name, holder.value) for name, holder in step.holders.items() if name in compiled.options.persists)
    for name, value in (*zip(compiled.fetches, results, strict=True), *written):
        if isinstance(value, RemoteArray):
            continue  # a startup program has just handed it over
        array = np.asarray(to_dense(value))
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            writers = [op for op in program.global_block().ops if name in op.output_arg_names]
            by = f", written by {writers[-1].type} ({writers[-1].written_at})" if writers else ""
            raise FloatingPointError(f"FLAGS_check_nan_inf: {name} holds NaN or Inf{by}")
