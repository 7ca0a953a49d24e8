"""Datasets: files of samples in Fluid's MultiSlot format, which `Executor.train_from_dataset` reads.

`refluid.datasets` does the work. A dataset gives its batches as feeds, too, for any other kind of training loop:

    for feed in dataset.feeds():
        exe.run(program, feed=feed)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from threading import Thread
from typing import Any
from weakref import finalize

from paddle.fluid.incubate.fleet.base.trainer_group import exchange, group_of, sum_over_workers
from refluid.datasets import in_memory
from refluid.datasets.feed_desc import desc_text, new_desc
from refluid.datasets.feeds import Feed, chunks_of, feeds_of
from refluid.datasets.meter import Meter
from refluid.datasets.records import Records
from refluid.datasets.schema import CONTENT, LINE_ID, Schema
from refluid.datasets.sources import AnySource, Download
from refluid.datasets.streams import RecordStream
from refluid.datasets.text_files import TextFiles
from refluid.files.storage import at
from refluid.flags import read_flag
from refluid.readers.position import Position

__all__ = ["DatasetFactory", "InMemoryDataset", "QueueDataset"]

_LOCAL, _GLOBAL = "local", "global"  # kinds of shuffles
_READING = "threads", "files"  # what the order of samples depends on when files are read
_SEND_BATCH_SIZE = 1024  # samples in a message of a global shuffle


class DatasetFactory:
    """Creates datasets by the name of their class."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> Any:
        """Creates a QueueDataset, InMemoryDataset, FileInstantDataset or BoxPSDataset."""
        if datafeed_class not in _KINDS:
            raise ValueError(f"datafeed class {datafeed_class} does not exist; there are {', '.join(_KINDS)}")
        return _KINDS[datafeed_class]()


class DatasetBase:
    """What all datasets have: files, how to read them, and the variables that they fill."""

    _FEED = "MultiSlotDataFeed"  # real Fluid's class, which `desc` names
    _READING: dict[str, Any] = {}  # options of `TextFiles`
    parse_ins_id = parse_content = fea_eval = False

    def __init__(self) -> None:
        self.proto_desc = new_desc()
        self.proto_desc.name, self.proto_desc.pipe_command = self._FEED, "cat"
        self.thread_num = 1
        self.filelist: list[str] = []
        self._schema: Schema | None = None
        self._hdfs_config: dict[str, str] = {}
        self._download_command = ""
        self._texts: TextFiles | None = None
        self.position = Position()
        self._reading: Mapping[str, Any] | None = None  # how the files of this pass are read, or those in memory were
        self._saved: Mapping[str, Any] = {}  # the order of batches when the position was saved, until a pass begins

    def set_pipe_command(self, pipe_command: str) -> None:
        """Sets the shell command that turns each file, its stdin, into MultiSlot lines; "cat" by default."""
        self.proto_desc.pipe_command = pipe_command

    def set_batch_size(self, batch_size: int) -> None:
        """Sets the number of samples in a batch; 32 by default."""
        if batch_size < 1:
            raise ValueError(f"{self._name}.set_batch_size: expected a positive number, got {batch_size}")
        self.proto_desc.batch_size = batch_size

    def set_thread(self, thread_num: int) -> None:
        """Sets how many files are read at once."""
        if thread_num < 1:
            raise ValueError(f"{self._name}.set_thread: expected a positive number, got {thread_num}")
        self.thread_num = thread_num

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Sets the files: local paths, URLs, and ``hdfs:`` or ``afs:`` paths on what `set_hdfs_config` names."""
        if isinstance(filelist, str):
            raise TypeError(f"{self._name}.set_filelist: expected a list of paths, got the string {filelist!r}")
        self.filelist = list(filelist)

    def set_use_var(self, var_list: Sequence[Any]) -> None:
        """Sets the variables that the slots of a line fill, in the order of the slots.

        A variable with a LoD becomes a sequence, one without becomes an array of its shape.
        """
        self._schema = Schema.of(var_list)
        del self.proto_desc.multi_slot_desc.slots[:]
        for slot in self._schema.slots:
            described = self.proto_desc.multi_slot_desc.slots.add(name=slot.name, is_used=True)
            described.type = "uint64" if slot.dtype == "int64" else "float"
            if slot.dense:
                described.is_dense = True
                described.shape.extend(slot.shape)

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Sets the file system of ``hdfs:`` and ``afs:`` paths, any that fsspec knows, and "user,password" for it."""
        self._hdfs_config = {"fs.default.name": fs_name, "hadoop.job.ugi": fs_ugi}

    def set_download_cmd(self, download_cmd: str) -> None:
        """Sets a shell command that prints a file of an ``hdfs:`` or ``afs:`` path, which is appended to it."""
        self._download_command = download_cmd

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Allows `slots_shuffle`, with which the importance of a slot is measured.

        Args:
          record_candidate_size: accepted; values are exchanged among all samples in memory.
        """
        self.fea_eval = fea_eval

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Exchanges the values of slots among samples in memory; raises if they are not there."""
        raise NotImplementedError(
            f"{self._name} reads a stream, which cannot be shuffled; use an InMemoryDataset for slots_shuffle"
        )

    def desc(self) -> str:
        """Returns the description of the input, as real Fluid writes it."""
        return desc_text(self.proto_desc)

    @property
    def skipped_lines(self) -> int:
        """How many malformed lines were skipped, under FLAGS_dataset_skip_malformed_lines, since reading last began."""
        return 0 if self._texts is None else self._texts.skipped

    def feeds(
        self,
        threads: int | None = None,
        meter: Meter | None = None,
        *,
        skip: int = 0,
        drop_last: bool = False,
        counted: bool = True,
    ) -> Generator[Feed]:
        """Generates the batches of one pass: dicts of variable name to array, or to LoDTensor where there is a LoD.

        Threads read, parse and batch ahead. Closing the generator ends them.

        Args:
          threads: how many files to read at once; that of `set_thread` by default.
          meter: receives the seconds of the stages "read", "parse" and "batch".
          skip: how many batches to leave out at the beginning.
          drop_last: whether to leave out a last batch that is smaller.
          counted: whether batches count as taken when they are generated; otherwise the caller tells ``position``.
        """
        threads = self._threads(threads)
        self._prepare()
        order = {**self._order(), **self._read_again(threads)}
        self._check_order(order)
        feeds = self._feeds(threads, meter or Meter(), skip + self.position.to_skip, drop_last)
        # Only now: a pass that is refused leaves the position as it was.
        self.position.begin()
        self._saved, self._reading = {}, {name: order[name] for name in _READING}
        return self._counted(feeds) if counted else feeds

    def _threads(self, threads: int | None) -> int:
        """How many files to read at once."""
        if threads is not None and threads < 0:
            raise ValueError(f"{self._name}: expected a number of threads, or 0 for that of set_thread; got {threads}")
        return threads or self.thread_num

    def _feeds(self, threads: int, meter: Meter, skip: int, drop_last: bool) -> Generator[Feed]:
        raise NotImplementedError

    def _prepare(self) -> None:
        """Gets the samples into the order in which they were when the position was saved."""

    def _counted(self, feeds: Generator[Feed]) -> Generator[Feed]:
        with closing(feeds):
            for feed in feeds:
                self.position.took()
                yield feed
        self.position.ended()

    def state_dict(self) -> dict[str, Any]:
        """Returns how far this dataset was read, as JSON: its pass, and how many of its batches were taken.

        Save it with the parameters. A run that is resumed gives it to `load_state_dict`, then loads and shuffles as it
        always does. Its first pass continues with the next batch, and shuffles are repeated as they were.
        """
        return {**self.position.state_dict(), "order": dict(self._saved) or self._order()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next pass continue where `state_dict` was called; call it before samples are shuffled."""
        self.position.load_state_dict(state)
        self._saved = dict(state.get("order", {}))

    def _order(self) -> dict[str, Any]:
        """What the order of batches depends on."""
        return {"batch_size": self._batch_size, **(self._reading or self._reading_with(self.thread_num))}

    def _reading_with(self, threads: int) -> dict[str, Any]:
        """What the order of samples depends on when the files are read now."""
        digest = hashlib.sha256("\n".join(map(str, self.filelist)).encode()).hexdigest()[:16]
        return dict(zip(_READING, (threads, f"{len(self.filelist)} with digest {digest}"), strict=True))

    def _read_again(self, threads: int) -> dict[str, Any]:
        """How a pass that begins now reads the files; nothing, if it takes samples from memory."""
        return self._reading_with(threads)

    def _check_order(self, order: Mapping[str, Any]) -> None:
        skip = self.position.to_skip
        for name, value in order.items():
            if skip and name in self._saved and self._saved[name] != value:
                raise ValueError(
                    f"{self._name}: {skip} batches are to be left out, but the order of batches has changed since this "
                    f"position was saved: {name} was {self._saved[name]}, and is {value}"
                )

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _batch_size(self) -> int:
        return self.proto_desc.batch_size

    def _read_by(self, caller: str) -> tuple[Schema, TextFiles, list[AnySource]]:
        """What reading needs; raises if something was not set."""
        if self._schema is None or len(self._schema) == 0:
            raise RuntimeError(
                f"{self._name}.{caller}: call set_use_var(variables) first: which variables do slots fill?"
            )
        if not self.filelist:
            raise RuntimeError(f"{self._name}.{caller}: call set_filelist(files) first: there are no files to read")
        skip = bool(read_flag("FLAGS_dataset_skip_malformed_lines"))
        words = [name for name, parse in ((LINE_ID, self.parse_ins_id), (CONTENT, self.parse_content)) if parse]
        schema = self._schema.after_words(words)
        self._texts = TextFiles(schema, self.proto_desc.pipe_command, skip_malformed=skip, **self._READING)
        return schema, self._texts, [self._path(file) for file in self.filelist]

    def _path(self, file: str) -> AnySource:
        scheme, _, rest = file.partition(":")
        if scheme not in ("hdfs", "afs"):
            return at(file)
        if self._download_command:
            return Download(self._download_command, file)
        if self._hdfs_config:
            from paddle.fluid.contrib.utils.hdfs_utils import HDFSClient

            return HDFSClient(None, self._hdfs_config)._at(file if rest.startswith("//") else rest)
        if rest.startswith("//"):
            return at(file)
        raise RuntimeError(f"{self._name}: {file} names no host; call set_hdfs_config(fs_name, fs_ugi) before reading")


class QueueDataset(DatasetBase):
    """Reads files as a stream, in bounded memory.

    With one thread, samples come in the order of the lines. With more, chunks of that many files alternate, always in
    the same way.
    """

    def local_shuffle(self) -> None:
        """Raises: a stream cannot be shuffled."""
        raise NotImplementedError(
            f"{self._name} reads a stream, which cannot be shuffled; use an InMemoryDataset for local_shuffle"
        )

    def global_shuffle(self, fleet: Any = None) -> None:
        """Raises: a stream cannot be shuffled."""
        raise NotImplementedError(
            f"{self._name} reads a stream, which cannot be shuffled; use an InMemoryDataset for global_shuffle"
        )

    def _feeds(self, threads: int, meter: Meter, skip: int, drop_last: bool) -> Generator[Feed]:
        _, texts, files = self._read_by("feeds")
        stream = RecordStream(files, threads, partial(texts.read, meter=meter))
        return feeds_of(stream, self._batch_size, 1, meter, skip=skip, drop_last=drop_last, close=stream.close)


class FileInstantDataset(QueueDataset):
    """The same as a QueueDataset."""

    _FEED = "MultiSlotFileInstantDataFeed"


class InMemoryDataset(DatasetBase):
    """Keeps all samples in memory, in the form of `refluid.datasets.records`, and shuffles them.

    Like real Fluid, it leaves ids of 0, and floats below 1e-6, out of sequences when it loads them; a sequence of
    nothing else becomes a single 0.
    """

    _FEED = "MultiSlotInMemoryDataFeed"
    _READING = {"drop_zeros": True, "block_size": 32 << 20}

    def __init__(self) -> None:
        super().__init__()
        self.queue_num: int | None = None
        self.fleet_send_batch_size: int | None = None
        self.fleet_send_sleep_seconds: int | None = None
        self._records: Records | None = None
        self._shuffled = 0
        self._shuffles: list[tuple[str, int]] = []  # what was done to the samples since they were loaded: kind and seed
        self._to_repeat: list[tuple[str, int]] = []  # what was done to them when the position was saved
        self._before_slots_shuffle: Records | None = None
        self._preload: Future[Records] | None = None
        self._preload_reading: Mapping[str, Any] = {}
        self._end_preload: Callable[[], Any] = lambda: None
        self._trainers = 1  # that the last global shuffle distributed samples among
        self.merge_size: int | None = None
        self._merged = False

    def set_queue_num(self, queue_num: int) -> None:
        """Accepts the number of queues between readers and trainers in real Fluid; there are none here."""
        self.queue_num = queue_num

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Sets how many samples `global_shuffle` sends to another trainer in one message."""
        self.fleet_send_batch_size = fleet_send_batch_size

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """Accepts real Fluid's pause between messages; messages wait for their replies here."""
        self.fleet_send_sleep_seconds = fleet_send_sleep_seconds

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Sets whether lines begin with "1" and a word, the id of the line, before the slots of the variables."""
        self.parse_ins_id = parse_ins_id

    def set_parse_content(self, parse_content: bool) -> None:
        """Sets whether lines have "1" and a word, which is not used here, before the slots and after a line id."""
        self.parse_content = parse_content

    def set_feed_type(self, data_feed_type: str) -> None:
        """Sets the class of real Fluid that `desc` names."""
        self.proto_desc.name = data_feed_type

    def set_merge_by_lineid(self, merge_size: int = 2) -> None:
        """Has `global_shuffle` merge every ``merge_size`` lines of the same id into a sample; others are dropped.

        Lines that are merged have values for different sequences; the arrays of the last line are taken.
        """
        if merge_size < 1:
            raise ValueError(f"{self._name}.set_merge_by_lineid: expected a positive number, got {merge_size}")
        self.merge_size, self.parse_ins_id = merge_size, True

    def load_into_memory(self) -> None:
        """Reads all files, replacing what is in memory."""
        self.release_memory()
        schema, stream = self._stream("load_into_memory", self.thread_num)
        self._reading = self._reading_with(self.thread_num)
        self._records = in_memory.load(stream, schema)

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Starts to read all files in the background; what is in memory stays until `wait_preload_done`.

        Args:
          thread_num: how many files to read at once; that of `set_thread` by default.
        """
        if self._preload is not None:
            raise RuntimeError(
                "InMemoryDataset.preload_into_memory: already preloading; call wait_preload_done() first"
            )
        threads = self._threads(thread_num)
        schema, stream = self._stream("preload_into_memory", threads)
        self._preload, self._preload_reading = Future(), self._reading_with(threads)
        self._end_preload = finalize(self, stream.close)  # commands must not outlive this dataset, or Python
        load = partial(in_memory.load, stream, schema)
        Thread(target=_run, args=(self._preload, load), name="refluid: preload", daemon=True).start()

    def wait_preload_done(self) -> None:
        """Waits for `preload_into_memory`, and replaces what is in memory by what it read."""
        if self._preload is None:
            raise RuntimeError("InMemoryDataset.wait_preload_done: call preload_into_memory() first")
        preload, self._preload = self._preload, None
        self.release_memory()
        try:
            self._records, self._reading = preload.result(), self._preload_reading
        finally:
            self._end_preload()

    def local_shuffle(self) -> None:
        """Shuffles the samples in memory; the order follows NumPy's global seed."""
        self._loaded("local_shuffle")
        for kind, seed in self._due(_LOCAL):
            self._shuffle(kind, seed)

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Distributes the samples of all trainers among them at random, and shuffles them.

        All trainers must call it. If it fails, as when a trainer dies, samples are lost: load them again.

        Args:
          fleet: the fleet of the trainers; without it, or with one trainer, samples stay here.
          thread_num: how many messages to other trainers are on their way at once.
        """
        self._loaded("global_shuffle")
        group = group_of(fleet)
        for kind, seed in self._due(_GLOBAL):
            self._shuffle(kind, seed, group, thread_num)
        self._shuffled = len(self._loaded("global_shuffle"))

    def _due(self, kind: str) -> list[tuple[str, int]]:
        """The shuffles to carry out when one of a kind is asked for: a new one, or those of a saved position."""
        last = max((i for i, (each, _) in enumerate(self._to_repeat) if each == kind), default=None)
        if last is None:
            self._prepare()
            return [(kind, in_memory.new_seed())]
        due, self._to_repeat = self._to_repeat[: last + 1], self._to_repeat[last + 1 :]
        return due

    def _prepare(self) -> None:
        if any(kind == _GLOBAL for kind, _ in self._to_repeat):
            raise RuntimeError(
                f"{self._name}: samples were distributed by global_shuffle when this position was saved; "
                "call global_shuffle(fleet) before they are read"
            )
        due, self._to_repeat = self._to_repeat, []
        for kind, seed in due:
            self._shuffle(kind, seed)

    def _shuffle(self, kind: str, seed: int, group: Any = None, threads: int = 1) -> None:
        records = self._loaded("local_shuffle")
        if kind == _GLOBAL:
            self._trainers = 1 if group is None else group.trainers
        if kind == _GLOBAL and group is not None:
            blocks, schema = in_memory.give_away(records), records.schema
            self._records = self._before_slots_shuffle = None
            del records  # the blocks are freed as they are sent
            records = exchange(group, blocks, schema, seed, self.fleet_send_batch_size or _SEND_BATCH_SIZE, threads)
        if kind == _GLOBAL and self.merge_size is not None and not self._merged:
            records, self._merged = in_memory.merge_lines(records, self.merge_size), True
        self._records = in_memory.shuffle(records, seed)
        self._shuffles.append((kind, seed))

    def _order(self) -> dict[str, Any]:
        shuffles = [list(each) for each in self._shuffles]
        return {**super()._order(), "trainers": self._trainers, "shuffles": shuffles}

    def _read_again(self, threads: int) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next pass continue where `state_dict` was called; call it before samples are shuffled."""
        if self._shuffles:
            raise RuntimeError(f"{self._name}.load_state_dict: the samples are shuffled already; call it before")
        super().load_state_dict(state)
        self._to_repeat = self._saved_shuffles()

    def _saved_shuffles(self) -> list[tuple[str, int]]:
        return [(str(kind), int(seed)) for kind, seed in self._saved.get("shuffles", [])]

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Exchanges the values of these slots among the samples at random; an earlier exchange is undone first."""
        records = self._loaded("slots_shuffle")
        if not self.fea_eval:
            raise RuntimeError(f"{self._name}.slots_shuffle: call set_fea_eval(record_candidate_size, True) first")
        known = [slot.name for slot in records.schema.slots]
        for name in slots:
            if name not in known:
                raise ValueError(f"{self._name}.slots_shuffle: there is no slot {name}; there are {', '.join(known)}")
        if self._before_slots_shuffle is None:
            self._before_slots_shuffle = records
        self._records = in_memory.shuffle_slots(self._before_slots_shuffle, slots)

    def release_memory(self) -> None:
        """Drops the samples in memory."""
        self._before_slots_shuffle = self._reading = None
        self._records, self._shuffled, self._shuffles, self._merged = None, 0, [], False
        self._trainers, self._to_repeat = 1, self._saved_shuffles()

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """Returns the number of samples in memory; with a fleet, of all its trainers, which must all call it."""
        return sum_over_workers(fleet, "get_memory_data_size", 0 if self._records is None else len(self._records))

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """Returns the number of samples in memory after `global_shuffle`, 0 before it; with a fleet, as above."""
        return sum_over_workers(fleet, "get_shuffle_data_size", self._shuffled)

    def _feeds(self, threads: int, meter: Meter, skip: int, drop_last: bool) -> Generator[Feed]:
        chunks = chunks_of(self._loaded("feeds"))
        return feeds_of(chunks, self._batch_size, threads, meter, skip=skip, drop_last=drop_last)

    def _stream(self, caller: str, threads: int) -> tuple[Schema, RecordStream]:
        schema, texts, files = self._read_by(caller)
        return schema, RecordStream(files, threads, partial(texts.read, meter=Meter()))

    def _loaded(self, caller: str) -> Records:
        if self._records is None:
            raise RuntimeError(f"{self._name}.{caller}: nothing is in memory; call load_into_memory() first")
        return self._records


class BoxPSDataset(InMemoryDataset):
    """An InMemoryDataset. The tables of BoxPS, which its passes are for in real Fluid, are those of this process."""

    _FEED = "PaddleBoxDataFeed"

    def set_date(self, date: str) -> None:
        """Accepts the day of the data, "20190720"; nothing here depends on it."""
        if len(date) != 8 or not date.isdigit():
            raise ValueError(f"BoxPSDataset.set_date: expected a day such as '20190720', got {date!r}")

    def begin_pass(self) -> None:
        """Accepts the beginning of a pass; the tables are ready."""
        self._loaded("begin_pass")

    def end_pass(self, need_save_delta: bool) -> None:
        """Accepts the end of a pass; the tables are those of the scope, and are saved with them."""


def _run(result: Future[Records], load: Callable[[], Records]) -> None:
    try:
        result.set_result(load())
    except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
        result.set_exception(error)


_KINDS = {kind.__name__: kind for kind in (QueueDataset, InMemoryDataset, FileInstantDataset, BoxPSDataset)}
