"""Messages as bytes: a protobuf header, then raw tensors. See protocol.proto for the layout.

Encoding returns a list of buffers, so that tensors are copied once, when the buffers are joined; decoding returns views
into the received bytes. A large tensor is part of a view that starts at an aligned address, where XLA can read it in
place, and whose size does not depend on the address of the message; see `refluid.lowering.staging.Shifted`. The bytes
after the last tensor leave room for that.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from refluid.alignment import ALIGNMENT, COPIED_AT_ONCE, phase_of
from refluid.lowering.buckets import round_up
from refluid.runtime.transport import protocol_pb2

pb: Any = protocol_pb2  # generated: its names exist at run time only

PROTOCOL = 7
# What taking a malformed message apart may raise.
BAD_MESSAGE = (ValueError, TypeError, OverflowError)
LONGEST_HEADER = 4 << 20  # bytes, of a request: some ten thousand tensors; parsing takes a multiple of it
MOST_FIELDS = 1 << 16  # of a request's header: tensors, and names of those that are wanted
MOST_DIMS = 16
_DTYPES = {
    name: np.dtype(name)
    for name in "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split()
}
_LENGTH = struct.Struct("<I")
_PADDING = bytes(ALIGNMENT)
_INT64 = np.dtype(np.int64)


class MalformedError(ValueError):
    """Bytes that are no message of the protocol."""


@dataclass(frozen=True)
class Rows:
    """Selected rows in a message: row numbers and the values of each."""

    rows: np.ndarray
    values: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.values.nbytes

    def padded(self, height: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers and values, padded to ``size`` rows; row ``height`` of a table stands for no row."""
        rows = np.full(size, height, np.int64)
        rows[: len(self.rows)] = self.rows
        values = np.zeros((size, *self.values.shape[1:]), self.values.dtype)
        values[: len(self.rows)] = self.values
        return rows, values


def row_bucket(count: int) -> int:
    """The number of rows that ``count`` rows are padded to: 64, 96, 128, 192, 256, ..."""
    return max(64, round_up(count, digits=2))


class RowSizes:
    """The numbers of rows that rows of tables are padded to: one in use as long as it fits, as others compile anew."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def fit(self, table: str, count: int) -> int:
        """The number of rows to pad ``count`` rows of a table to."""
        size = self._sizes.get(table, 0)
        if not size // 4 <= count <= size:
            size = self._sizes[table] = row_bucket(count + count // 8)
        return size


Value = np.ndarray | Rows


def dense(value: Value) -> np.ndarray:
    """A value that must be dense."""
    assert isinstance(value, np.ndarray)
    return value


@cache
def _name_of(dtype: np.dtype) -> str:
    return dtype.name  # NumPy computes it on every access


def encode(header: Any, tensors: Mapping[str, Value] = MappingProxyType({})) -> list[Any]:
    """The buffers of a message: the header, which gets a description of the tensors, and the tensors."""
    for name, value in tensors.items():
        array = value.values if isinstance(value, Rows) else value
        dtype, sparse = _name_of(array.dtype), array is not value
        header.tensors.append(pb.Tensor(name=name, dtype=dtype, dims=array.shape, sparse=sparse))
    head = header.SerializeToString()
    buffers: list[Any] = [_LENGTH.pack(len(head)), head]
    place = _LENGTH.size + len(head)
    for array in _arrays(tensors.values()):
        gap = -place % ALIGNMENT
        if gap:
            buffers.append(_PADDING[:gap])
        buffers.append(_bytes_of(array))
        place += gap + array.nbytes
    if len(buffers) > 2:
        buffers.append(_PADDING)
    return buffers


def decode(kind: Any, message: Any) -> Any:
    """The header of a message.

    Raises:
      MalformedError: it has none of this kind, or the header of a request is too long.
    """
    view = memoryview(message)
    length = _header_length(view)
    if length > LONGEST_HEADER and _is_request(kind):
        raise MalformedError(f"the header of a request has {length} bytes; {LONGEST_HEADER} are allowed")
    header = view[_LENGTH.size : _LENGTH.size + length]
    if length > MOST_FIELDS and _is_request(kind) and _has_more_fields(header, MOST_FIELDS):
        raise MalformedError(f"the header of a request has more than {MOST_FIELDS} fields")
    try:
        return kind.FromString(header)
    except DecodeError:
        raise MalformedError(f"{length} bytes are no {kind.DESCRIPTOR.name}") from None


def _has_more_fields(header: memoryview, most: int) -> bool:
    """Whether a header has more fields: two bytes can be an empty tensor, which takes a hundred once it is parsed."""
    place = count = 0
    while place < len(header) and count <= most:
        tag, place = _varint(header, place)
        count += 1
        if tag & 7 == 2:
            size, place = _varint(header, place)
            place += size
        elif tag & 7 == 0:
            _, place = _varint(header, place)
        else:
            place += {1: 8, 5: 4}.get(tag & 7, len(header))
    return count > most


def _varint(header: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(header) and shift < 70:
        byte = header[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            break
    return value, place


@cache
def _is_request(kind: Any) -> bool:
    return kind.DESCRIPTOR.name.endswith("Request")


def _header_length(view: memoryview) -> int:
    if len(view) < _LENGTH.size:
        raise MalformedError(f"a message has {len(view)} bytes; its header takes more")
    (length,) = _LENGTH.unpack_from(view)
    if length > len(view) - _LENGTH.size:
        raise MalformedError(f"a message has {len(view)} bytes, and its header {length}")
    return length


def decode_tensors(header: Any, message: Any) -> dict[str, Value]:
    """The tensors in a message by name, as its header describes them; they share its memory.

    Raises:
      MalformedError: the message does not hold what the header describes.
    """
    found: dict[str, Value] = {}
    view = memoryview(message)
    length, place = len(view), _LENGTH.size + _header_length(view)
    phase = phase_of(np.frombuffer(message, np.uint8))

    def take(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        nonlocal place
        place += -place % ALIGNMENT
        size = math.prod(shape) * dtype.itemsize
        if place + size > length:
            raise MalformedError(f"a message of {length} bytes has no {dtype}{list(shape)} at byte {place}")
        begin, place = place, place + size
        if size < COPIED_AT_ONCE or phase % dtype.itemsize or place + ALIGNMENT > length:
            return np.ndarray(shape, dtype, message, begin)
        before, room = phase // dtype.itemsize, ALIGNMENT // dtype.itemsize
        count = size // dtype.itemsize
        around = np.frombuffer(message, dtype, count + room, begin - phase)
        return around[before : before + count].reshape(shape)

    for tensor in header.tensors:
        dims, dtype = tuple(tensor.dims), _DTYPES.get(tensor.dtype)
        if dtype is None or len(dims) > MOST_DIMS or any(dim < 0 for dim in dims) or tensor.name in found:
            raise MalformedError(
                f"{tensor.name[:128]}: cannot be {tensor.dtype[:32]}{list(dims[:MOST_DIMS])}, or again"
            )
        if tensor.sparse and not dims:
            raise MalformedError(f"{tensor.name[:128]}: selected rows have dims")
        rows = take(_INT64, dims[:1]) if tensor.sparse else None
        values = take(dtype, dims)
        found[tensor.name] = values if rows is None else Rows(rows, values)
    return found


def _arrays(values: Iterable[Value]) -> Iterable[np.ndarray]:
    for value in values:
        if isinstance(value, Rows):
            yield value.rows
            yield value.values
        else:
            yield value


def _bytes_of(array: np.ndarray) -> Any:
    if array.nbytes == 0:
        return b""
    array = np.ascontiguousarray(array)
    try:
        return memoryview(array).cast("B")  # pyright: ignore[reportArgumentType]
    except (ValueError, TypeError, BufferError):  # types the buffer protocol has no letter for, such as bfloat16
        return array.view(np.uint8).reshape(-1).data
