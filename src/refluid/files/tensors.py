"""Fluid's binary form of tensors: LoDTensor and SelectedRows streams, little-endian.

Readers do not trust the file: they check how many bytes are left before they allocate, so reading takes at most eight
times the size of the file (sequence offsets become Python integers; everything else takes its own size) plus 1 MB.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import DecodeError

from refluid.files.raw import left, read_aligned
from refluid.ir.protobuf import pb
from refluid.ops.core.dtypes import fluid_dtype, numpy_dtype
from refluid.tensors import LoDTensor, RemoteArray, SelectedRowsTensor, own

_MAX_LEVELS = 64
_MAX_DESC = 1 << 16


class TensorFileError(ValueError):
    """Bytes that are not a Fluid tensor."""


def write_lod_tensor(stream: BinaryIO, array: Any, lod: Sequence[Sequence[int] | np.ndarray] = ()) -> None:
    """Writes one LoDTensor."""
    stream.write(struct.pack("<IQ", 0, len(lod)))
    for level in lod:
        stream.write(struct.pack("<Q", 8 * len(level)))
        stream.write(np.asarray(level, "<u8").tobytes())
    _write_tensor(stream, array)


def write_selected_rows(stream: BinaryIO, rows: Any, height: int, values: Any) -> None:
    """Writes one SelectedRows."""
    stream.write(struct.pack("<IQ", 0, len(rows)))
    stream.write(np.asarray(rows, "<i8").tobytes())
    stream.write(struct.pack("<q", height))
    _write_tensor(stream, values)


def write_rows_in_parts(
    stream: BinaryIO, count: int, height: int, like: np.ndarray, parts: Callable[[], Iterable[tuple[Any, Any]]]
) -> None:
    """Writes one SelectedRows of ``count`` rows from parts of row numbers and values, which are iterated over twice.

    Args:
      like: an array with the dtype of the values, and their width as the size of its last dim.
    """
    stream.write(struct.pack("<IQ", 0, count))
    for rows, _ in parts():
        stream.write(np.ascontiguousarray(rows, "<i8").data)
    stream.write(struct.pack("<q", height))
    _write_desc(stream, like.dtype, (count, like.shape[-1]))
    for _, values in parts():
        stream.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def write_holder(stream: BinaryIO, holder: LoDTensor | SelectedRowsTensor) -> None:
    """Writes the value of a variable in a scope."""
    if isinstance(holder, SelectedRowsTensor):
        write_selected_rows(stream, holder._rows, holder.height(), np.asarray(holder.get_tensor().value))
    elif isinstance(holder.value, RemoteArray) and holder.value.any_ids:
        holder.value.write_rows(stream)
    else:
        write_lod_tensor(stream, np.asarray(holder.settled().value), holder._lod)


def _write_tensor(stream: BinaryIO, array: Any) -> None:
    array = np.ascontiguousarray(array)
    _write_desc(stream, array.dtype, array.shape)
    stream.write(array.reshape(-1).view(np.uint8).data)


def _write_desc(stream: BinaryIO, dtype: np.dtype, shape: Sequence[int]) -> None:
    desc = pb.VarType.TensorDesc(data_type=fluid_dtype(dtype), dims=shape).SerializeToString()
    stream.write(struct.pack("<Ii", 0, len(desc)) + desc)


def read_lod_tensor(stream: BinaryIO) -> LoDTensor:
    """Reads one LoDTensor."""
    array, lod = read_array(stream)
    try:
        return LoDTensor(own(array), lod)
    except (ValueError, OverflowError) as error:
        raise TensorFileError(f"not a LoDTensor: {error}") from error


def read_array(stream: BinaryIO) -> tuple[np.ndarray, list[list[int]]]:
    """Reads one LoDTensor as a NumPy array and the offsets of its sequences, which are not checked."""
    version, levels = struct.unpack("<IQ", _exactly(stream, 12))
    if version != 0 or levels > _MAX_LEVELS:
        raise TensorFileError(f"not a LoDTensor: version {version}, {levels} levels")
    lod = [_read_level(stream) for _ in range(levels)]
    return _read_tensor(stream), lod


def _read_level(stream: BinaryIO) -> list[int]:
    (size,) = struct.unpack("<Q", _exactly(stream, 8))
    if size % 8:
        raise TensorFileError(f"not a LoDTensor: a level of {size} bytes")
    return np.frombuffer(_exactly(stream, size), "<u8").tolist()


def read_selected_rows(stream: BinaryIO) -> SelectedRowsTensor:
    """Reads one SelectedRows."""
    rows, height, values = read_rows(stream)
    if height < 0 or (len(rows) and rows.min() < 0):
        raise TensorFileError(f"not a SelectedRows: row {rows.min(initial=0)} of {height}")
    found = SelectedRowsTensor(rows, height)
    found.get_tensor().value = own(values)
    return found


def read_rows(stream: BinaryIO) -> tuple[np.ndarray, int, np.ndarray]:
    """Reads one SelectedRows as NumPy arrays: the numbers of rows, which are not checked, the height, and values."""
    version, count = struct.unpack("<IQ", _exactly(stream, 12))
    if version != 0:
        raise TensorFileError(f"not a SelectedRows: version {version}")
    rows = np.frombuffer(_exactly(stream, 8 * count), "<i8")
    (height,) = struct.unpack("<q", _exactly(stream, 8))
    values = _read_tensor(stream)
    if not values.ndim or len(values) < count:
        raise TensorFileError(f"not a SelectedRows: {count} rows, values of shape {list(values.shape)}")
    return rows, height, values


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
    dims = tuple(desc.dims)
    if len(dims) > 32 or any(not 0 <= dim < 1 << 48 for dim in dims):
        raise TensorFileError(f"not a tensor: its dims are {list(dims[:40])}")
    count = math.prod(dims)
    size = count * dtype.itemsize
    if size > left(stream):
        raise _ends_too_early(size, left(stream))
    array = read_aligned(stream, size)
    try:
        return array.view(dtype).reshape(dims)
    except ValueError as error:  # no elements, and yet too large for NumPy
        raise TensorFileError(f"not a tensor: its dims are {list(dims)}") from error


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """Reads ``size`` bytes; checks how many are left first, so that a forged size allocates nothing."""
    if size > left(stream):
        raise _ends_too_early(size, left(stream))
    return stream.read(size)


def _ends_too_early(size: int, available: int) -> TensorFileError:
    return TensorFileError(f"the file ends too early: {size} bytes are missing, {available} are left")
