"""Readers, which are functions without arguments that return an iterator of samples, and their decorators."""

from paddle.reader import creator
from paddle.reader.decorator import (
    ComposeNotAligned,
    Fake,
    PipeReader,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)

__all__ = [
    "ComposeNotAligned",
    "Fake",
    "PipeReader",
    "buffered",
    "cache",
    "chain",
    "compose",
    "creator",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]
