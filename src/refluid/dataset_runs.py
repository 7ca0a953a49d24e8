"""Passes over a dataset: `Executor.train_from_dataset`, `infer_from_dataset` and the batches of a DataLoader.

The dataset reads and parses on its own threads. A further thread pads the next batches and moves them to the device
while XLA computes; the calling thread only calls compiled steps, each found once per shape, and waits for results only
where somebody looks at them. The calling thread also takes the batches from the dataset, so whatever interrupts it,
Ctrl-C included, closes the dataset's generator at once.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import jax
import numpy as np

from refluid import flags, profiling
from refluid.fetch_handler import FetchHandler, Watch
from refluid.fetching import as_tensor, check_fetches, copied, fetch_names
from refluid.ir.program import Program
from refluid.ir.prune import drop_training_ops
from refluid.ir.roles import OpRole
from refluid.jobs import is_of_job
from refluid.log import Log
from refluid.lowering.exchange import seconds_exchanging
from refluid.lowering.ragged import PaddingError
from refluid.lowering.staging import readable_in_place
from refluid.lowering.step import Step, StepKey
from refluid.run_reports import Progress, described, samples_in
from refluid.scope import Scope, global_scope
from refluid.tensors import LoDTensor

if TYPE_CHECKING:
    from refluid.executor import Executor

_AHEAD = 2  # batches that are prepared while one is computed
_NAMED = 3  # files of a batch that an error names; samples in memory may come from any of many
_SMALL = 50e-6  # seconds; a batch that is prepared in less time is small


@dataclass(frozen=True)
class Reports:
    """What the user wants to see of a pass."""

    fetches: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()
    period: int = 100  # batches between two prints of the fetches
    debug: bool = False
    handler: FetchHandler | None = None

    @classmethod
    def of(cls, fetch_list: Any, fetch_info: Any, print_period: int, debug: bool, handler: Any) -> Reports:
        """Reads the arguments of `train_from_dataset`."""
        fetches = fetch_names(fetch_list) if fetch_list is not None else ()
        infos = [fetch_info] if isinstance(fetch_info, str) else list(fetch_info or fetches)
        if len(infos) != len(fetches):
            raise ValueError(f"fetch_info has {len(infos)} texts for the {len(fetches)} variables of fetch_list")
        if print_period < 1:
            raise ValueError(f"print_period must be 1 or more, not {print_period}")
        if handler is not None and not isinstance(handler, FetchHandler):
            raise TypeError(f"fetch_handler must be a fluid.executor.FetchHandler, not {type(handler).__name__}")
        return cls(fetches, tuple(map(str, infos)), int(print_period), debug, handler)


def check_dataset(dataset: Any) -> None:
    """Raises unless ``dataset`` is one."""
    if dataset is None:
        raise RuntimeError("a dataset is needed: make one with fluid.DatasetFactory().create_dataset(...)")
    if not hasattr(dataset, "feeds"):
        raise TypeError(
            f"dataset must be made by fluid.DatasetFactory().create_dataset(...), not {type(dataset).__name__}"
        )


def run_dataset(
    executor: Executor, call: str, program: Program, dataset: Any, scope: Scope | None, threads: int, reports: Reports
) -> None:
    """Runs ``program`` once for every batch of ``dataset``; ``call`` names the method in reports."""
    check_dataset(dataset)
    if threads < 0:
        raise ValueError(f"{call}: thread must be 0, for what the dataset was told, or more; it is {threads}")
    if is_of_job(program) and any(op.role & OpRole.Backward for op in program.global_block().ops):
        raise RuntimeError(
            f"{call}: the program belongs to a job of {len(program._trainers_endpoints)} processes, but a pass runs on "
            "one device of this process, so each would train for itself; instead run the program on the batches of "
            "fluid.io.DataLoader.from_dataset(dataset, places)"
        )
    scope = global_scope() if scope is None else scope
    _Pass(executor, call, program, dataset, scope, threads, reports).run()


def batches_of(dataset: Any, places: Any, drop_last: bool = True) -> Iterator[list[dict[str, Any]]]:
    """Yields lists of feeds, one for each place, as `DataLoader.from_dataset` does.

    Args:
      dataset: reads on as many threads as it was told to.
      places: a place or a list of them; how many feeds each list has.
      drop_last: leave out a last batch that is smaller, and feeds that do not suffice for all places.
    """
    check_dataset(dataset)
    count = len(places) if isinstance(places, list | tuple) else 1
    group: list[dict[str, Any]] = []
    with closing(dataset.feeds(drop_last=drop_last)) as feeds:
        for feed in feeds:
            group.append(feed)
            if len(group) == count:
                yield group
                group = []
    if group and not drop_last:
        yield group


_inferring: WeakKeyDictionary[Program, tuple[int, Program | None]] = WeakKeyDictionary()


def without_training(program: Program) -> Program:
    """``program`` without backward, optimizer and learning rate ops, and without pushes; itself if it has none.

    Real Fluid runs the program of `infer_from_dataset` as it is and trains if it is a training program.
    """
    version, found = _inferring.get(program, (-1, None))
    if version != program._version:
        found = program.clone()
        drop_training_ops(found)
        block = found.global_block()
        block.ops = [op for op in block.ops if not op.role & OpRole.LRSched]
        found.changed()
        if len(block.ops) == len(program.global_block().ops):
            found = None  # not the program: it would keep itself alive
        _inferring[program] = program._version, found
    return found or program


class _Form:
    """One form of batches: the key of their step, and the step once it has run."""

    def __init__(self, key: StepKey):
        self.key = key
        self.step: Step | None = None


@dataclass(frozen=True)
class _Batch:
    number: int  # from 1
    feed: Mapping[str, Any]
    form: _Form
    values: list[Any]


Prepared = _Batch | Future[_Batch]


class _Pass:
    """One pass over a dataset."""

    def __init__(
        self,
        executor: Executor,
        call: str,
        program: Program,
        dataset: Any,
        scope: Scope,
        threads: int,
        reports: Reports,
    ):
        self._executor, self._program, self._scope = executor, program, scope
        self._call, self._dataset, self._threads, self._reports = call, dataset, threads, reports
        self._position = getattr(dataset, "position", None)
        self._log = Log("dataset")
        self._progress = Progress(call, self._log)
        self._forms: dict[StepKey, _Form] = {}
        self._fetches = self._all_fetches()
        self._latest: Sequence[Any] = ()  # what the last step fetched
        self._waiting: deque[Prepared] = deque()  # the batches after the one that is computed
        self._choosing = threading.Lock()  # guards the executor's buckets
        self._preparing = math.inf  # seconds that the last batch took

    def _all_fetches(self) -> tuple[str, ...]:
        """What steps fetch: the user's fetches, and what the handler watches, unless it is state or unknown."""
        block, reports = self._program.global_block(), self._reports
        if reports.fetches:
            check_fetches(block, reports.fetches, [v.name for v in block.vars.values() if v.is_data], self._scope)
        written = {name for op in block.ops for name in op.output_arg_names}
        watched = [] if reports.handler is None else reports.handler.names().values()
        watched = [n for n in watched if n in written and not block.vars[n].persistable and n not in reports.fetches]
        return (*reports.fetches, *dict.fromkeys(watched))

    def run(self) -> None:
        """Runs all batches; no thread is left behind, however it ends."""
        handler = self._reports.handler
        watch = None if handler is None else Watch(handler, self._watched, self._log)
        failure = None
        try:
            with closing(self._batches()) as batches:
                self._run(batches)
        finally:
            if watch is not None:
                failure = watch.close()
            self._progress.end()
        if failure is not None:
            failure.add_note(f"raised by the fetch handler; {self._call} itself went on to the end")
            raise failure

    def _run(self, batches: Iterator[_Batch]) -> None:
        progress, spent, reports = self._progress, self._progress.spent, self._reports
        began = time.perf_counter()
        for batch in batches:
            ready = time.perf_counter()
            spent["wait"] += ready - began
            exchanged, compiled = seconds_exchanging(), self._executor.compilations
            try:
                self._latest = self._step(batch)
            except Exception as error:
                error.add_note(self._where(batch))
                raise
            began, exchanged = time.perf_counter(), seconds_exchanging() - exchanged
            spent["exchange"] += exchanged
            stage = "compile" if self._executor.compilations > compiled else "compute"
            spent[stage] += began - ready - exchanged
            if self._position is not None:
                self._position.took()
            progress.stepped(_samples(batch.feed))
            if batch.number % reports.period == 0:
                self._print()
            if reports.debug:
                progress.debug()
        if self._position is not None:
            self._position.ended()

    # Batches, ahead of the steps

    def _batches(self) -> Generator[_Batch]:
        waiting = self._waiting
        # Batches count when they were trained on, not when they are read ahead.
        options = {} if self._position is None else {"counted": False}
        feeds = self._dataset.feeds(self._threads or None, self._progress.meter, **options)
        with closing(feeds), ThreadPoolExecutor(1, "refluid: prepare") as worker:
            for number, feed in enumerate(feeds, 1):
                # Handing a batch over takes longer than preparing a small one.
                is_small = self._preparing < _SMALL and (not waiting or _is_done(waiting[-1]))
                waiting.append(self._prepare(number, feed) if is_small else worker.submit(self._prepare, number, feed))
                if len(waiting) > _AHEAD:
                    yield _ready(waiting.popleft())
            while waiting:
                yield _ready(waiting.popleft())

    def _prepare(self, number: int, feed: Mapping[str, Any]) -> _Batch:
        began, executor = time.perf_counter(), self._executor
        with self._choosing:
            key, values = executor.prepare(self._program, feed, self._fetches, self._scope)
        values = readable_in_place(values) if executor.target.is_cpu else jax.device_put(values, executor.target.device)
        self._preparing = time.perf_counter() - began
        return _Batch(number, feed, self._forms.setdefault(key, _Form(key)), values)

    # Steps

    def _step(self, batch: _Batch) -> Sequence[Any]:
        step = batch.form.step
        if step is None or step.epoch != self._scope.epoch or flags.check_nan_inf or profiling.recorder is not None:
            return self._new_step(batch)
        if step.compiled.communicates and self._waiting and _is_fine(self._waiting[0]):
            following = _ready(self._waiting[0])
            step.expect(dict(zip(following.form.key.feeds, following.values, strict=True)))
        with jax.enable_x64(True):
            return step(batch.values)

    def _new_step(self, batch: _Batch) -> Sequence[Any]:
        executor, program, form = self._executor, self._program, batch.form
        try:
            with jax.enable_x64(True), profiling.record("executor.run"):
                form.step, results = executor.find_and_run(program, form.key, self._scope, batch.values)
            return results
        except PaddingError as error:
            if not executor.gave_up(program, form.key):  # else a batch that was prepared before
                executor.give_up_padding(program, error)
        return self._new_step(self._prepare(batch.number, batch.feed))

    # Reports

    def _print(self) -> None:
        for info, name, value in zip(self._reports.infos, self._reports.fetches, self._latest, strict=False):
            tensor = as_tensor(name, value)
            print(described(info, name, tensor) if isinstance(tensor, LoDTensor) else f"{info}\t{name}\t\t{tensor}")
        if self._reports.infos:
            print(end="", flush=True)

    def _watched(self, name: str) -> Any:
        """The value of a variable for the fetch handler, from the last step or from the scope."""
        assert self._reports.handler is not None
        with self._scope.changing:  # the next step takes over the memory of what it changes
            if name in self._fetches and self._latest:
                value = as_tensor(name, self._latest[self._fetches.index(name)])
            else:
                held = self._scope.find_var(name)
                if held is None or held.value is None:
                    return None
                value = as_tensor(name, held.value)
            array = value if not isinstance(value, LoDTensor) else copied(value)
            if not self._reports.handler.return_np and isinstance(value, LoDTensor):
                return LoDTensor(np.asarray(array), value.lod())
            return array

    def _where(self, batch: _Batch) -> str:
        """Where a batch is in the dataset, for errors."""
        progress, files = self._progress, getattr(batch.feed, "files", ())
        first = progress.samples + 1
        samples = f"samples {first} to {progress.samples + _samples(batch.feed)} of the pass"
        origin = f", from {', '.join(files)}" if 0 < len(files) <= _NAMED else ""
        return f"in {self._call}, step {progress.steps + 1}: batch {batch.number} of the dataset ({samples}){origin}"


def _is_done(prepared: Prepared) -> bool:
    return isinstance(prepared, _Batch) or prepared.done()


def _is_fine(prepared: Prepared) -> bool:
    return isinstance(prepared, _Batch) or prepared.exception() is None


def _ready(prepared: Prepared) -> _Batch:
    return prepared if isinstance(prepared, _Batch) else prepared.result()


def _samples(feed: Mapping[str, Any]) -> int:
    return samples_in(next(iter(feed.values())))
