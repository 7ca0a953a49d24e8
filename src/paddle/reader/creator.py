"""Readers of arrays and files."""

import glob
import io
import os

import numpy as np

from paddle.reader.decorator import buffered
from refluid.files import recordio as records
from refluid.files.pickles import PickleError, read_pickle
from refluid.files.storage import at

__all__ = ["np_array", "recordio", "text_file"]


def np_array(x):
    """Returns a reader of the rows of an array; a scalar is a single sample."""

    def reader():
        if np.ndim(x) < 1:
            yield x
            return
        yield from x

    return reader


def text_file(path):
    """Returns a reader of the lines of a text file, without line ends."""

    def reader():
        with at(path).open("rb") as stream, io.TextIOWrapper(stream, encoding="utf-8") as lines:
            for line in lines:
                yield line.rstrip("\n")

    return reader


def recordio(paths, buf_size=100):
    """Returns a reader of the samples in recordio files, as `paddle.dataset.common.convert` writes them.

    Args:
      paths: a path, several separated by commas, or a list; patterns as in ``train-*`` stand for all files that match.
      buf_size: how many samples a thread reads ahead.
    """

    def reader():
        for path in _matching(paths):
            for number, record in enumerate(records.read(path)):
                try:
                    yield read_pickle(record)
                except PickleError as error:
                    raise PickleError(f"{path}, record {number}: {error}") from error

    return buffered(reader, buf_size)


def _matching(paths):
    patterns = paths.split(",") if isinstance(paths, str) else [os.fspath(path) for path in paths]
    for pattern in patterns:
        if "://" in pattern or os.path.exists(pattern):
            yield pattern
            continue
        found = sorted(glob.glob(pattern))
        if not found:
            raise FileNotFoundError(f"no file matches {pattern}")
        yield from found
