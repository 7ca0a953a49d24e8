"""Reader decorators. Threads are in refluid.readers.threads, processes in refluid.readers.processes."""

import codecs
import itertools
import random
import subprocess
import zlib
from typing import Any

from refluid.readers import processes, threads

__all__ = [
    "ComposeNotAligned",
    "Fake",
    "PipeReader",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]


class ComposeNotAligned(ValueError):
    """Raised if the readers passed to compose have different numbers of samples."""


def cache(reader):
    """Reads all samples into memory immediately; the new reader can be iterated any number of times."""
    samples = tuple(reader())

    def cached():
        yield from samples

    return cached


def map_readers(func, *readers):
    """Returns a reader of ``func(sample_of_first, sample_of_second, ...)``."""

    def mapped():
        return map(func, *(reader() for reader in readers))

    return mapped


def shuffle(reader, buf_size):
    """Shuffles samples within a buffer of ``buf_size``, with Python's ``random``."""

    def shuffled():
        samples = iter(reader())
        while window := list(itertools.islice(samples, max(1, buf_size))):
            random.shuffle(window)
            yield from window

    return shuffled


def chain(*readers):
    """Concatenates readers."""

    def chained():
        return itertools.chain.from_iterable(reader() for reader in readers)

    return chained


def compose(*readers, **kwargs):
    """Zips several readers into one flat tuple per sample.

    Args:
      check_alignment: raise ComposeNotAligned if one reader ends before the others (the default); otherwise stop
        quietly at the end of the shortest.
    """
    check_alignment = kwargs.pop("check_alignment", True)
    if kwargs:
        raise TypeError(f"compose got an unexpected argument {next(iter(kwargs))!r}; it accepts check_alignment")

    def composed():
        parts = [reader() for reader in readers]
        rows = itertools.zip_longest(*parts, fillvalue=_END) if check_alignment else zip(*parts, strict=False)
        for row in rows:
            short = [number for number, sample in enumerate(row, 1) if sample is _END]
            if short:
                raise ComposeNotAligned(f"reader {short[0]} of {len(readers)} ended before the others")
            yield tuple(itertools.chain.from_iterable(map(_as_tuple, row)))

    return composed


_END = object()


def _as_tuple(sample):
    return sample if isinstance(sample, tuple) else (sample,)


def buffered(reader, size):
    """Reads up to ``size`` samples ahead in a thread."""

    def data_reader():
        return threads.read_ahead(reader, size)

    return data_reader


def firstn(reader, n):
    """Stops after ``n`` samples."""

    def firstn_reader():
        return itertools.islice(reader(), n)

    return firstn_reader


def xmap_readers(mapper, reader, process_num, buffer_size, order=False):
    """Maps samples in ``process_num`` threads, ``buffer_size`` samples ahead; ``order`` preserves their order."""
    if process_num < 1:
        raise ValueError(f"xmap_readers requires at least one thread, got {process_num}")

    def xreader():
        return threads.map_in_threads(mapper, reader, process_num, buffer_size, ordered=order)

    return xreader


def multiprocess_reader(readers, use_pipe=True, queue_size=1000):
    """Runs each reader in its own process and yields samples as they arrive.

    Args:
      use_pipe: use one pipe per process; otherwise one queue of ``queue_size`` samples for all.
    """
    if not isinstance(readers, list) or not readers:
        raise ValueError(f"multiprocess_reader requires a non-empty list of readers, got {readers!r}")

    def mixed():
        return processes.mix(readers, None if use_pipe else queue_size)

    return mixed


class PipeReader:
    """Reads the output of a command, for external data: ``hadoop fs -cat``, ``curl``, ``cat``.

    Args:
      command: the command line, as a string.
      bufsize: the number of bytes to read at a time.
      file_type: "plain", or "gzip" to decompress the output.
    """

    def __init__(self, command, bufsize=8192, file_type="plain"):
        if not isinstance(command, str):
            raise TypeError(f"PipeReader requires the command as a string, not {type(command).__name__}")
        if file_type not in ("plain", "gzip"):
            raise TypeError(f"PipeReader: file_type must be 'plain' or 'gzip', not {file_type!r}")
        self.command, self.bufsize, self.file_type = command, bufsize, file_type

    def get_line(self, cut_lines=True, line_break="\n"):
        """Yields the lines of the output or, with ``cut_lines=False``, its chunks as they arrive."""
        text = self._text()
        if not cut_lines:
            yield from text
            return
        rest = ""
        for piece in text:
            *lines, rest = (rest + piece).split(line_break)
            yield from lines
        if rest:
            yield rest

    def _text(self):
        pieces = _decompressed(self._output()) if self.file_type == "gzip" else self._output()
        return codecs.iterdecode(pieces, "utf-8")

    def _output(self):
        process = subprocess.Popen(self.command.split(), stdout=subprocess.PIPE)
        output: Any = process.stdout
        try:
            while piece := output.read1(self.bufsize):
                yield piece
        except GeneratorExit:
            process.kill()
            raise
        finally:
            output.close()
            status = process.wait()
        if status:
            raise OSError(f"PipeReader: the command `{self.command}` exited with status {status}")


def _decompressed(pieces):
    """Yields the decompressed content of gzip data, which may be several concatenated files."""
    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for piece in pieces:
        while piece:
            yield member.decompress(piece)
            piece = member.unused_data
            if member.eof:
                member = zlib.decompressobj(zlib.MAX_WBITS | 16)


class Fake:
    """Repeats the first sample of a reader, to measure training without reading costs."""

    def __init__(self):
        self.data = None
        self.yield_num = 0

    def __call__(self, reader, length):
        """Returns a reader that yields the first sample ``length`` times."""

        def fake_reader():
            if self.data is None:
                self.data = next(iter(reader()))
            while self.yield_num < length:
                yield self.data
                self.yield_num += 1
            self.yield_num = 0

        return fake_reader
