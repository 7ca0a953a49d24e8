"""The reader of Fluid 1.5 for click data, which reads text files in threads; `fluid.DatasetFactory` came after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from paddle.fluid.layers.io import PyReaderVariable, create_py_reader_by_data
from refluid.datasets.ctr import Csv, CtrFiles, Format, Svm
from refluid.datasets.feeds import feeds_of
from refluid.datasets.meter import Meter
from refluid.datasets.schema import Schema
from refluid.datasets.streams import RecordStream
from refluid.files.storage import at
from refluid.readers.reader import Batch

__all__ = ["ctr_reader"]


def ctr_reader(
    feed_dict: Sequence[Any],
    file_type: str,
    file_format: str,
    dense_slot_index: Sequence[int],
    sparse_slot_index: Sequence[int],
    capacity: int,
    thread_num: int,
    batch_size: int,
    file_list: Sequence[str],
    slots: Sequence[str],
    name: str | None = None,
) -> PyReaderVariable:
    """Creates a reader of click data in text files, for `fluid.layers.read_file`.

    A pass begins with ``start()``. At its end `Executor.run` raises ``fluid.core.EOFException``; ``reset()`` ends it.

    Args:
      feed_dict: the variables to fill: those of dense slots, those of sparse slots, and the label, in this order.
      file_type: ``"gzip"`` or ``"plain"``.
      file_format: ``"csv"``, lines of ``label dense,dense,... id,id,...``; or ``"svm"``, lines of
        ``label slot:id slot:id ...``, where a slot without ids becomes a single 0.
      dense_slot_index: csv: the numbers of the fields of dense slots; the label is field 0.
      sparse_slot_index: csv: the numbers of the fields of sparse slots.
      capacity: how many batches are read ahead.
      thread_num: how many files are read at once.
      batch_size: how many samples make a batch.
      file_list: the files.
      slots: svm: the names of the slots.
      name: the name of the reader.
    """
    if file_type not in ("gzip", "plain"):
        raise ValueError(f"ctr_reader: file_type must be 'gzip' or 'plain', not {file_type!r}")
    for what, number in (("thread_num", thread_num), ("batch_size", batch_size)):
        if number < 1:
            raise ValueError(f"ctr_reader: {what} must be at least 1, not {number}")
    if isinstance(file_list, str) or not file_list:
        raise ValueError(f"ctr_reader: file_list must list the files to read, not {file_list!r}")
    read = CtrFiles(
        Schema.of(feed_dict),
        _format(feed_dict, file_format, dense_slot_index, sparse_slot_index, slots),
        gzipped=file_type == "gzip",
    ).read
    reader = create_py_reader_by_data(capacity, feed_dict, name, use_double_buffer=False)
    reader.queue.source = _source(list(file_list), thread_num, batch_size, read)
    return reader


def _format(
    feed_dict: Sequence[Any], name: str, dense: Sequence[int], sparse: Sequence[int], slots: Sequence[str]
) -> Format:
    if name == "csv":
        _check_count(feed_dict, [f"field {field}" for field in (*dense, *sparse)])
        if any(field < 1 for field in (*dense, *sparse)):
            raise ValueError("ctr_reader: fields of slots are numbered from 1; the label is field 0")
        return Csv([*dense, *sparse, 0])
    if name == "svm":
        _check_count(feed_dict, [f"slot {slot}" for slot in slots])
        return Svm([str(slot) for slot in slots])
    raise ValueError(f"ctr_reader: file_format must be 'csv' or 'svm', not {name!r}")


def _check_count(feed_dict: Sequence[Any], filled: Sequence[str]) -> None:
    if len(feed_dict) != len(filled) + 1:
        raise ValueError(
            f"ctr_reader: feed_dict has {len(feed_dict)} variables ({', '.join(v.name for v in feed_dict)}); expected "
            f"{len(filled) + 1}, for {', '.join([*filled, 'the label'])}"
        )


def _source(
    files: Sequence[str], threads: int, batch_size: int, read: Callable[..., Any]
) -> Callable[[int], Iterable[Batch]]:
    def begin(skip: int) -> Iterable[Batch]:
        meter = Meter()
        stream = RecordStream([at(file) for file in files], threads, partial(read, meter=meter))
        feeds = feeds_of(stream, batch_size, 1, meter, skip=skip, close=stream.close)
        return (list(feed.values()) for feed in feeds)

    return begin
