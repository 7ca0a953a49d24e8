"""The reader of `open_files`: batches from recordio files, several of which are read at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from refluid.files import recordio
from refluid.ir.vartype import VarType, as_numpy
from refluid.readers.batching import Slot
from refluid.readers.generators import Batches, SourceReader
from refluid.readers.making import makes
from refluid.readers.merging import merged
from refluid.readers.reader import Batch
from refluid.tensors import LoDTensor


@makes("open_files")
class FilesReader(SourceReader):
    """Reads the batches of recordio files in threads.

    Args:
      shape_concat, ranks, lod_levels, dtypes: the form of each value of a batch.
      thread_num: how many files to read at once; one thread keeps the order of the files.
      buffer_size: how many batches to read ahead.
      pass_num: how many times to read the files before a pass ends.
    """

    def __init__(
        self,
        file_names: Sequence[str],
        shape_concat: Sequence[int],
        ranks: Sequence[int],
        lod_levels: Sequence[int],
        dtypes: Sequence[int],
        thread_num: int,
        buffer_size: int,
        pass_num: int = 1,
    ):
        super().__init__()
        dims = iter(shape_concat)
        shapes = [tuple(itertools.islice(dims, rank)) for rank in ranks]
        self._slots = [
            Slot(f"value {place}", shape, as_numpy(VarType(dtype)), level)
            for place, (shape, dtype, level) in enumerate(zip(shapes, dtypes, lod_levels, strict=True))
        ]
        self._paths = list(file_names)
        self._threads = min(thread_num, len(self._paths))
        self._buffer_size, self._pass_num = buffer_size, pass_num

    def batches(self) -> Batches:
        sources = [partial(_read, path, self._slots) for path in self._paths]
        for _ in range(self._pass_num):
            yield from merged(sources, self._threads, self._buffer_size)


def _read(path: str, slots: Sequence[Slot]) -> Iterator[Batch]:
    for number, record in enumerate(recordio.read(path)):
        try:
            tensors = recordio.unpack_tensors(record)
            if len(tensors) != len(slots):
                raise ValueError(f"it has {len(tensors)} values, but {len(slots)} are declared")
            for slot, tensor in zip(slots, tensors, strict=True):
                _check(slot, tensor)
        except ValueError as error:
            raise recordio.RecordIOError(f"{path}, record {number}: {error}") from error
        yield [tensor if tensor.lod() else tensor.value for tensor in tensors]


def _check(slot: Slot, tensor: LoDTensor) -> None:
    array: Any = np.asarray(tensor.value)
    fits = len(slot.shape) == array.ndim and all(
        want < 0 or want == have for want, have in zip(slot.shape, array.shape, strict=True)
    )
    if not fits or array.dtype != slot.dtype or (slot.lod_level and len(tensor.lod()) != slot.lod_level):
        raise ValueError(
            f"{slot.name} is {array.dtype}{list(array.shape)} of LoD level {len(tensor.lod())}, "
            f"but {slot.dtype}{list(slot.shape)} of LoD level {slot.lod_level} is declared"
        )
