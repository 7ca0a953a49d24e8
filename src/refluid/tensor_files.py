"""Fluid's binary form of tensors: LoDTensor and SelectedRows streams, little-endian.

A file is written beside its place and moved there when it is complete, so that a reader never sees half a file.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import DecodeError

from refluid.ir.protobuf import pb
from refluid.ops.dtypes import fluid_dtype, numpy_dtype
from refluid.tensors import LoDTensor, SelectedRowsTensor, to_device

_MAX_LEVELS = 64
_MAX_DESC = 1 << 16


class TensorFileError(ValueError):
    """Bytes that are not a Fluid tensor."""


def write_lod_tensor(stream: BinaryIO, array: Any, lod: Sequence[Sequence[int]] = ()) -> None:
    """Writes one LoDTensor."""
    stream.write(struct.pack("<IQ", 0, len(lod)))
    for level in lod:
        stream.write(struct.pack("<Q", 8 * len(level)))
        stream.write(np.asarray(level, "<u8").tobytes())
    _write_tensor(stream, array)


def write_selected_rows(stream: BinaryIO, rows: Sequence[int], height: int, values: Any) -> None:
    """Writes one SelectedRows."""
    stream.write(struct.pack("<IQ", 0, len(rows)))
    stream.write(np.asarray(rows, "<i8").tobytes())
    stream.write(struct.pack("<q", height))
    _write_tensor(stream, values)


def _write_tensor(stream: BinaryIO, array: Any) -> None:
    array = np.ascontiguousarray(array)
    desc = pb.VarType.TensorDesc(data_type=fluid_dtype(array.dtype), dims=array.shape).SerializeToString()
    stream.write(struct.pack("<Ii", 0, len(desc)))
    stream.write(desc)
    stream.write(array.data if array.size else b"")


def read_lod_tensor(stream: BinaryIO) -> LoDTensor:
    """Reads one LoDTensor."""
    version, levels = struct.unpack("<IQ", _exactly(stream, 12))
    if version != 0 or levels > _MAX_LEVELS:
        raise TensorFileError(f"not a LoDTensor: version {version}, {levels} levels")
    lod = []
    for _ in range(levels):
        (size,) = struct.unpack("<Q", _exactly(stream, 8))
        lod.append(np.frombuffer(_exactly(stream, size), "<u8").astype(np.int64).tolist())
    tensor = LoDTensor(to_device(_read_tensor(stream)))
    if lod:
        tensor.set_lod(lod)
    return tensor


def read_selected_rows(stream: BinaryIO) -> SelectedRowsTensor:
    """Reads one SelectedRows."""
    version, count = struct.unpack("<IQ", _exactly(stream, 12))
    if version != 0:
        raise TensorFileError(f"not a SelectedRows: version {version}")
    rows = np.frombuffer(_exactly(stream, 8 * count), "<i8")
    (height,) = struct.unpack("<q", _exactly(stream, 8))
    found = SelectedRowsTensor(rows.tolist(), height)
    found.get_tensor().value = to_device(_read_tensor(stream))
    return found


def _read_tensor(stream: BinaryIO) -> np.ndarray:
    version, size = struct.unpack("<Ii", _exactly(stream, 8))
    if version != 0 or not 0 < size <= _MAX_DESC:
        raise TensorFileError(f"not a tensor: version {version}, a description of {size} bytes")
    desc = pb.VarType.TensorDesc()
    try:
        desc.ParseFromString(_exactly(stream, size))
        dtype = numpy_dtype(desc.data_type)
    except (DecodeError, TypeError) as error:
        raise TensorFileError(f"not a tensor: {error}") from error
    if any(dim < 0 for dim in desc.dims):
        raise TensorFileError(f"not a tensor: its dims are {list(desc.dims)}")
    count = 1
    for dim in desc.dims:
        count *= dim
    return np.frombuffer(_exactly(stream, count * dtype.itemsize), dtype).reshape(tuple(desc.dims))


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """``size`` bytes; asks how many are left first, so that a wild size does not allocate."""
    left = _left(stream)
    if size > left:
        raise TensorFileError(f"the file ends too early: {size} bytes are missing, {left} are left")
    return stream.read(size)


def _left(stream: BinaryIO) -> int:
    position = stream.tell()
    end = stream.seek(0, os.SEEK_END)
    stream.seek(position)
    return end - position


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream whose content appears under ``path`` when the block ends well, and not at all otherwise."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
