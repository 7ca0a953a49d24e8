"""Writes the batches of a reader to recordio files, which `fluid.layers.open_files` reads."""

import itertools
import os

from refluid.files import recordio

__all__ = ["convert_reader_to_recordio_file", "convert_reader_to_recordio_files"]

_EXTENSION = ".recordio"


class RecordIOWriter:
    """Writes records of tensors; known as ``fluid.core.RecordIOWriter``."""

    Compressor = recordio.Compressor

    def __init__(self, filename, compressor, max_num_records):
        self._writer = recordio.Writer(filename, compressor, max_num_records)
        self._tensors = []

    def append_tensor(self, tensor):
        """Adds a tensor to the record."""
        self._tensors.append(tensor)

    def complete_append_tensor(self):
        """Ends the record, which has one tensor for each field of a batch."""
        self._writer.write(recordio.pack_tensors(self._tensors))
        self._tensors = []

    def close(self):
        """Completes the file; before that it does not exist."""
        self._writer.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self._writer.__exit__(kind, error, trace)


def convert_reader_to_recordio_file(
    filename,
    reader_creator,
    feeder,
    compressor=RecordIOWriter.Compressor.Snappy,
    max_num_records=1000,
    feed_order=None,
):
    """Writes the batches of a reader to one file and returns how many there were.

    Args:
      filename: the file, which appears when it is complete.
      reader_creator: a reader of batches, lists of samples.
      feeder: the `DataFeeder` that converts a batch to tensors; without one the reader gives feeds.
      compressor: ``fluid.core.RecordIOWriter.Compressor.Snappy`` (needs cramjam) or ``NoCompress``.
      max_num_records: how many batches to compress together.
      feed_order: the names of the fields to write, in order; by default those of the feeder.
    """
    return _write(filename, reader_creator(), feeder, compressor, max_num_records, feed_order)


def convert_reader_to_recordio_files(
    filename,
    batch_per_file,
    reader_creator,
    feeder,
    compressor=RecordIOWriter.Compressor.Snappy,
    max_num_records=1000,
    feed_order=None,
):
    """Writes the batches of a reader to several files and returns how many batches there were.

    Args:
      filename: ``name.recordio`` stands for ``name-00000.recordio``, ``name-00001.recordio``, …
      batch_per_file: how many batches a file has; the last one may have fewer.
      reader_creator, feeder, compressor, max_num_records, feed_order: as for `convert_reader_to_recordio_file`.
    """
    name, extension = os.path.splitext(filename)
    if extension != _EXTENSION:
        raise ValueError(f"the name of a recordio file ends in {_EXTENSION}; got {filename!r}")
    if batch_per_file < 1:
        raise ValueError(f"batch_per_file must be at least 1, not {batch_per_file}")
    batches, written = iter(reader_creator()), 0
    for number in itertools.count():
        some = itertools.islice(batches, batch_per_file)
        first = next(some, None)
        if first is None:
            return written
        part = f"{name}-{number:05d}{extension}"
        written += _write(part, itertools.chain([first], some), feeder, compressor, max_num_records, feed_order)


def _write(filename, batches, feeder, compressor, max_num_records, feed_order):
    names, written = feed_order, 0
    if names is None and feeder is not None:
        names = feeder.feed_names
    with RecordIOWriter(filename, compressor, max_num_records) as writer:
        for batch in batches:
            feed = batch if feeder is None else feeder.feed(batch)
            for name in names or feed:
                if name not in feed:
                    raise ValueError(f"feed_order names {name}, but the batch has {', '.join(feed)}")
                writer.append_tensor(feed[name])
            writer.complete_append_tensor()
            written += 1
    return written
