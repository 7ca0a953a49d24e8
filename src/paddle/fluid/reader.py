"""DataLoader and PyReader: batches that a Python generator makes ahead of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import ref

from paddle._missing import missing_names
from paddle.fluid.data_feeder import as_tensor, slot_of
from paddle.fluid.layers.io import append_reader
from refluid.announced import Announced
from refluid.dataset_runs import batches_of, check_dataset
from refluid.ir import Variable, default_main_program
from refluid.ir.unique_name import UniqueNameGenerator
from refluid.places import Place
from refluid.readers.passes import Pass, Peek
from refluid.readers.position import Position
from refluid.readers.queued import QueueReader
from refluid.readers.reader import Batch
from refluid.readers.sources import Batches, Source

__all__ = ["DataLoader", "PyReader"]

__getattr__ = missing_names(__name__)

# As in Fluid, names of these readers are unique in the process, whatever unique_name.guard says: their queues are in
# the global scope.
_name = UniqueNameGenerator()


class DataLoader:
    """Creates loaders: `from_generator` reads a Python generator, `from_dataset` a Dataset."""

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader:
        """Creates a loader of batches that a Python generator makes in a thread, ahead of training.

        >>> loader = fluid.io.DataLoader.from_generator(feed_list=[image, label], capacity=16)
        >>> loader.set_sample_list_generator(paddle.batch(reader, 64), places=fluid.CPUPlace())
        >>> for data in loader():
        ...     exe.run(program, feed=data, fetch_list=[loss])

        Args:
          feed_list: the variables to feed.
          capacity: how many batches the generator may be ahead.
          use_double_buffer: as in Fluid; batches are read ahead in any case.
          iterable: whether a Python loop iterates over the loader. Otherwise the program reads: a pass begins with
            ``start()``, `Executor.run` raises ``fluid.core.EOFException`` at its end, and ``reset()`` ends it.
          return_list: yield lists of tensors instead of feeds.
          use_multiprocess: run the generator in a process of its own, forked when a pass begins.
          drop_last: with several places, drop the last batches if there are fewer of them than places.
        """
        return GeneratorLoader(
            feed_list,
            capacity,
            use_double_buffer=use_double_buffer,
            iterable=iterable,
            return_list=return_list,
            use_multiprocess=use_multiprocess,
            drop_last=drop_last,
        )

    @staticmethod
    def from_dataset(dataset: Any, places: Any, drop_last: bool = True) -> DatasetLoader:
        """Creates a loader of the batches of a dataset, for training loops that call `Executor.run` themselves.

        >>> for data in fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(1)):
        ...     exe.run(program, feed=data, fetch_list=[loss])

        Args:
          dataset: made by `fluid.DatasetFactory`; it reads and parses in threads, ahead of training.
          places: a place or a list of them; the loader yields a list with one feed for each.
          drop_last: drop a last batch that is smaller, and the last feeds if there are fewer of them than places.
        """
        return DatasetLoader(dataset, places, drop_last)


class DatasetLoader:
    """A loader of what a dataset holds; every loop is a pass. A pass that is left early stops reading."""

    def __init__(self, dataset: Any, places: Any, drop_last: bool):
        check_dataset(dataset)
        self._dataset, self._places, self._drop_last = dataset, places, drop_last

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        return batches_of(self._dataset, self._places, self._drop_last)

    def __call__(self) -> Iterator[list[dict[str, Any]]]:
        return iter(self)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the dataset, as JSON: its pass and how many batches of it were taken."""
        return self._dataset.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next pass continue where `state_dict` was called; call it before the dataset is shuffled."""
        self._dataset.load_state_dict(state)


class GeneratorLoader:
    """A loader of what a generator yields. A generator is a function that returns an iterable, or an iterable."""

    def __init__(
        self,
        feed_list: Sequence[Variable] | None,
        capacity: int | None,
        *,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ):
        if not feed_list:
            raise ValueError("feed_list must list the variables to feed")
        if not capacity or int(capacity) < 1:
            raise ValueError(f"capacity must say how many batches are read ahead, at least 1; it is {capacity}")
        program = default_main_program()
        self._batches = Batches(tuple(slot_of(variable, program) for variable in feed_list))
        self._names = [slot.name for slot in self._batches.slots]
        self._capacity, self._in_worker = int(capacity), use_multiprocess
        self._iterable, self._return_list, self._drop_last = iterable, return_list, drop_last
        self._source: Source | None = None
        self._places = 1
        self._last_pass: ref[Pass] | None = None
        self._queue: QueueReader | None = None
        self._position = Position()
        if not iterable:
            self._queue = append_reader(feed_list, self._capacity, use_double_buffer, _name)
            self._queue.in_worker = use_multiprocess
            self._position = self._queue.position

    @property
    def iterable(self) -> bool:
        """Whether a Python loop iterates over this loader; otherwise its program reads from it."""
        return self._iterable

    @property
    def queue(self) -> QueueReader | None:
        """Where batches wait for the program, if it reads them."""
        return self._queue

    def set_sample_generator(
        self, reader: Any, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> GeneratorLoader:
        """Reads single samples, of which ``batch_size`` make a batch; returns the loader."""
        if int(batch_size) < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        return self._set(self._batches.of_samples(reader, int(batch_size), drop_last), places)

    def set_sample_list_generator(self, reader: Any, places: Any = None) -> GeneratorLoader:
        """Reads lists of samples, as `paddle.batch` makes them; returns the loader."""
        return self._set(self._batches.of_sample_lists(reader), places)

    def set_batch_generator(self, reader: Any, places: Any = None) -> GeneratorLoader:
        """Reads batches: one array or LoDTensor per variable, in a list or tuple in order, or in a dict by name.

        Returns the loader.
        """
        return self._set(self._batches.of_batches(reader), places)

    def _set(self, source: Source, places: Any) -> GeneratorLoader:
        self._source = source
        self._places = _count(places)
        if self._queue is not None:
            self._queue.source = source
        return self

    def __iter__(self) -> Pass:
        if not self._iterable:
            raise RuntimeError("this loader is not iterable: call start(), and reset() at the end; its program reads")
        if self._source is None:
            raise RuntimeError("no generator is set; call set_sample_list_generator() or another set method first")
        before = self._last_pass and self._last_pass()
        if before is not None:
            before.close()  # one pass at a time, as in Fluid
        begun = Pass(
            self._source,
            self._capacity,
            self._position,
            group=self._places,
            drop_last=self._drop_last,
            in_worker=self._in_worker,
            form=self._form,
        )
        self._last_pass = ref(begun)
        return begun

    def __call__(self) -> Pass:
        return iter(self)

    def __next__(self) -> Any:
        current = self._last_pass and self._last_pass()
        if current is None:
            raise RuntimeError("no pass has begun; iterate over the loader, or take batches from iter(loader)")
        return next(current)

    next = __next__

    def _form(self, batches: Sequence[Batch], peek: Peek) -> list[Any]:
        """What a step gets: a list with the feed of each place."""
        tensors = [list(map(as_tensor, batch)) for batch in batches]
        if self._return_list:
            return tensors
        following = partial(_following, self._names, peek)
        return [Announced(zip(self._names, each, strict=True), following) for each in tensors]

    def start(self) -> None:
        """Begins a pass of a loader that is not iterable."""
        self._reader("start").start()

    def reset(self) -> None:
        """Ends a pass of a loader that is not iterable, at its end or before."""
        self._reader("reset").reset()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of this loader, as JSON: its pass and how many batches of it were taken.

        Save it with the parameters, after the step that used the last batch. After `load_state_dict`, the next pass
        begins with the batch that follows. The generator runs again from the beginning of the pass, with the random
        state of `random` and `numpy.random` that it had; what it yields for batches that were taken is left out.
        """
        return self._position.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next pass continue where `state_dict` was called."""
        self._position.load_state_dict(state)

    def _reader(self, method: str) -> QueueReader:
        if self._queue is None:
            raise RuntimeError(f"{method}() is for loaders made with iterable=False; iterate over this one")
        return self._queue


def _following(names: Sequence[str], peek: Peek) -> dict[str, Any] | None:
    batch = peek()
    return None if batch is None else dict(zip(names, batch, strict=True))


class PyReader:
    """The loader of Fluid 1.5: like `DataLoader.from_generator`, with methods called ``decorate_...``."""

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ):
        self._loader = GeneratorLoader(
            feed_list, capacity, use_double_buffer=use_double_buffer, iterable=iterable, return_list=return_list
        )

    @property
    def iterable(self) -> bool:
        """Whether a Python loop iterates over this reader; otherwise its program reads from it."""
        return self._loader.iterable

    @property
    def queue(self) -> QueueReader | None:
        """Where batches wait for the program, if it reads them."""
        return self._loader.queue

    def decorate_sample_generator(
        self, sample_generator: Any, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> None:
        """Reads single samples, of which ``batch_size`` make a batch."""
        self._loader.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: Any, places: Any = None) -> None:
        """Reads lists of samples, as `paddle.batch` makes them."""
        self._loader.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Any, places: Any = None) -> None:
        """Reads batches: one array or LoDTensor per variable, in order or by name."""
        self._loader.set_batch_generator(reader, places)

    def __iter__(self) -> Pass:
        return iter(self._loader)

    def __call__(self) -> Pass:
        return iter(self._loader)

    def __next__(self) -> Any:
        return next(self._loader)

    next = __next__

    def start(self) -> None:
        """Begins a pass of a reader that is not iterable."""
        self._loader.start()

    def reset(self) -> None:
        """Ends a pass of a reader that is not iterable, at its end or before."""
        self._loader.reset()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of this reader, as JSON: its pass and how many batches of it were taken."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next pass continue where `state_dict` was called."""
        self._loader.load_state_dict(state)


def _count(places: Any) -> int:
    if places is None or isinstance(places, Place):
        return 1
    if not places or not all(isinstance(place, Place) for place in places):
        raise TypeError(f"places must be a place or a list of places, not {places!r}")
    return len(places)
