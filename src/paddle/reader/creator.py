"""Readers of arrays and files."""

import io

import numpy as np

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
    """Raises an error: RecordIO files are not supported, and Fluid itself dropped the format in 1.6."""
    raise NotImplementedError(
        f"RecordIO files are not supported (got {paths!r}): Fluid dropped the format in 1.6. "
        "Write the samples to text or NumPy files and use text_file or np_array."
    )
