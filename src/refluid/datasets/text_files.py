"""Data files: how a dataset reads and parses them, and what it counts on the way.

Files are MultiSlot text, unless their name says that they have columns. A pipe command makes text of any file.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

from refluid.datasets import parquet
from refluid.datasets.meter import Meter
from refluid.datasets.records import Records
from refluid.datasets.schema import Schema
from refluid.datasets.sources import AnySource, is_plain, open_stream, read_chunks
from refluid.datasets.text import TextParser


class TextFiles:
    """Reads MultiSlot files, in any number of threads.

    Args:
      skip_malformed, drop_zeros, block_size: as for `TextParser`. With a block size, records come in blocks of about
        this size, otherwise as they are read.

    Attributes:
      skipped: how many malformed lines were skipped so far.
    """

    def __init__(self, schema: Schema, pipe_command: str = "cat", **options: Any):
        self._schema, self._pipe_command, self._options = schema, pipe_command, options
        self._lock, self._warned = threading.Lock(), False
        self._columns = parquet.ColumnFiles(schema, drop_zeros=options.get("drop_zeros", False))
        self.skipped = 0

    def read(self, path: AnySource, opened: Callable[[Any], None], meter: Meter) -> Generator[Records]:
        """The records of a file, chunk by chunk; ``opened`` is told about the stream of a text file."""
        if parquet.is_columnar(path) and is_plain(self._pipe_command):
            yield from self._columns.read(path, meter)
            return
        parser, in_blocks = TextParser(self._schema, **self._options), "block_size" in self._options
        with closing(open_stream(path, self._pipe_command)) as stream:
            opened(stream)
            chunks = read_chunks(stream)
            while True:
                with meter.timing("read"):
                    text = next(chunks, None)
                if text is None:
                    break
                if not parser.has_room(text):
                    yield parser.take()
                with meter.timing("parse"):
                    parser.add(text, str(path))
                self._note(parser, path)
                if not in_blocks:
                    yield parser.take()
        if in_blocks:
            yield parser.take()

    def _note(self, parser: TextParser, path: AnySource) -> None:
        with self._lock:
            self.skipped += parser.skipped
            warn = parser.longer > 0 and not self._warned
            self._warned |= warn
        parser.skipped = parser.longer = 0
        if warn:
            warnings.warn(
                f"{path}: lines have more values than the {len(self._schema)} variables of set_use_var take; "
                "the rest of each line is ignored, as in Fluid",
                stacklevel=2,
            )
