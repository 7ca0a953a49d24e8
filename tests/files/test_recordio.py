"""Recordio files: what is written is read, the bytes are those of Fluid, and what is damaged is refused."""

from __future__ import annotations

import io
import struct
import sys
import zlib

import cramjam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refluid.files import recordio, snappy_streams
from refluid.files.recordio import Compressor, RecordIOError, Writer, pack_chunk
from refluid.tensors import LoDTensor

CASTAGNOLI = 0xE3069283  # CRC-32C of b"123456789", from its specification
MASKED = (((CASTAGNOLI >> 15) | (CASTAGNOLI << 17)) + 0xA282EAD8) & 0xFFFFFFFF

some_records = st.lists(st.one_of(st.binary(max_size=40), st.just(b"again " * 12_000)), max_size=12)
each_compressor = pytest.mark.parametrize("compressor", Compressor)


def written(path, records, compressor=Compressor.NoCompress, max_records=1000):
    with Writer(path, compressor, max_records) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


def read_bytes(data):
    return list(recordio.read_stream(io.BytesIO(data), "a.recordio"))


def readable(data):
    """The records that come out before an error, and the error."""
    found = []
    try:
        found.extend(record for record in recordio.read_stream(io.BytesIO(data), "a.recordio"))
    except RecordIOError as error:
        return found, str(error)
    return found, None


def test_the_bytes_are_those_of_fluid(tmp_path):
    body = bytes.fromhex("02000000 6869 00000000")
    assert written(tmp_path / "a", [b"hi", b""]) == (
        struct.pack("<5I", 0x01020304, 2, zlib.crc32(body), 0, len(body)) + body
    )


def test_snappy_streams_are_those_of_fluid():
    header = struct.pack(">BHI", 0, 9, MASKED)
    assert snappy_streams.compress(b"123456789") == b"snappy\0" + header + b"123456789"
    whole = snappy_streams.compress(b"a" * 40_000)
    is_compressed, size, _ = struct.unpack_from(">BHI", whole, 7)
    assert is_compressed == 1 and snappy_streams.decompress(whole[: 14 + size]) == b"a" * 32768


def test_snappy_streams_are_as_long_as_those_of_fluids_library():
    data = b"Hello, world! " * 64000 + b"\n"
    stream = snappy_streams.compress(data)
    assert len(stream) == 42708  # what the tests of snappystream expect
    assert snappy_streams.decompress(stream) == data


def test_a_compressed_block_written_by_hand_is_read():
    block = bytes([20, 0x00, ord("a"), (19 - 1) << 2 | 2, 1, 0])  # 20 bytes: the literal a, then 19 copies of it
    stream = b"snappy\0" + struct.pack(">BHI", 1, len(block), 0) + block
    assert snappy_streams.decompress(stream) == b"a" * 20


def test_files_of_the_tools_in_go_are_read():
    body = bytes(cramjam.snappy.compress(b"\x03\0\0\0abc"))  # framed; the number of records is the last field
    assert read_bytes(struct.pack("<5I", 0x01020304, zlib.crc32(body), 1, len(body), 1) + body) == [b"abc"]


@each_compressor
@settings(deadline=None, max_examples=25)
@given(chunks=st.lists(some_records, max_size=3))
def test_records_come_back(compressor, chunks):
    data = b"".join(pack_chunk(records, compressor) for records in chunks)
    assert read_bytes(data) == [record for records in chunks for record in records]


def test_a_chunk_has_at_most_so_many_records(tmp_path):
    data = written(tmp_path / "a", [b"a", b"b", b"c"], max_records=2)
    assert data == pack_chunk([b"a", b"b"], Compressor.NoCompress) + pack_chunk([b"c"], Compressor.NoCompress)
    assert list(recordio.read(tmp_path / "a")) == [b"a", b"b", b"c"]


@each_compressor
def test_every_cut_gives_whole_chunks_and_an_error(compressor):
    first = pack_chunk([b"first", b"second"], compressor)
    data, border = first + pack_chunk([b"third"], compressor), len(first)
    for end in range(1, len(data)):
        found, error = readable(data[:end])
        assert found == ([] if end < border else [b"first", b"second"])
        if end == border:
            assert error is None  # as if the file had been written so
        else:
            assert f"a.recordio, chunk at byte {0 if end < border else border}: the file " in error
            assert "ends after" in error or "is cut off" in error


@each_compressor
@settings(deadline=None, max_examples=60)
@given(place=st.integers(0), change=st.integers(1, 255))
def test_a_changed_byte_is_noticed(compressor, place, change):
    first = pack_chunk([b"first"], compressor)
    data = bytearray(first + pack_chunk([b"second " * 9], compressor))
    data[len(first) + place % (len(data) - len(first))] ^= change
    found, error = readable(data)
    assert found == [b"first"]
    assert f"a.recordio, chunk at byte {len(first)}: " in error


@pytest.mark.parametrize(
    ("body", "records", "compressor", "message"),
    [
        (b"\x01\0\0\0a", 2, 0, "it holds 1 records, but the header says 2"),
        (b"\xff\xff\xff\xffa", 1, 0, "record 0 is 4294967295 bytes long, but 1 bytes are left"),
        (b"\x01\0\0\0ab", 1, 0, "1 bytes follow its 1 records"),
        (b"plain", 1, 1, "not a snappy stream: it begins with b'plain'"),
        (b"snappy\0\1", 1, 1, "ends inside the header of a block"),
        (b"snappy\0" + struct.pack(">BHI", 0, 9, 0), 1, 1, "ends inside a block: 9 bytes expected, 0 are left"),
        (b"snappy\0" + struct.pack(">BHI", 1, 3, 0) + b"\x05\xff\xff", 1, 1, "the snappy block at byte 14 is damaged"),
        (b"snappy\0" + struct.pack(">BHI", 1, 5, 0) + b"\xff\xff\xff\xff\x0f", 1, 1, "it claims to hold 4294967295"),
        (b"\xff\x06\x00\x00sNaPpY\x00\x09", 1, 1, "the snappy stream is damaged"),
        (b"plain", 1, 2, "its gzip data is damaged"),
        (zlib.compress(b"ab", wbits=31)[:-1], 1, 2, "it ends too early or too late"),
    ],
)
def test_what_is_wrong_inside_a_chunk_is_said(body, records, compressor, message):
    header = struct.pack("<5I", 0x01020304, records, zlib.crc32(body), compressor, len(body))
    _, error = readable(header + body)
    assert f"a.recordio, chunk at byte 0: {message}" in error or message in error


def test_gzip_cannot_take_all_memory(monkeypatch):
    monkeypatch.setattr(recordio, "_LARGEST_GZIP", 100)
    body = zlib.compress(bytes(1000), wbits=31)
    _, error = readable(struct.pack("<5I", 0x01020304, 1, zlib.crc32(body), 2, len(body)) + body)
    assert "it holds more than 100 bytes" in error


def test_other_files_are_refused():
    _, error = readable(b"PK" + bytes(30))
    assert "not a recordio chunk: it begins with 0x00004b50" in error
    _, error = readable(struct.pack("<5I", 0x01020304, 1, 7, 9, 0))
    assert "unknown compressor 9" in error


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "a.recordio"
    written(path, [b"old"])
    with pytest.raises(KeyError), Writer(path, Compressor.NoCompress, max_records=1) as writer:
        writer.write(b"new")
        raise KeyError
    assert list(recordio.read(path)) == [b"old"]
    assert [found.name for found in tmp_path.iterdir()] == ["a.recordio"]
    with pytest.raises(ValueError, match="a.recordio: the writer is closed"):
        writer.write(b"late")


def test_a_chunk_ends_when_it_is_large(tmp_path, monkeypatch):
    monkeypatch.setattr(recordio, "_FULL", 10)
    data = written(tmp_path / "a", [b"12345678", b"x"])
    assert data.count(struct.pack("<I", 0x01020304)) == 2


def test_a_chunk_needs_a_record(tmp_path):
    with pytest.raises(ValueError, match="at least one record, but max_records is 0"):
        Writer(tmp_path / "a", Compressor.NoCompress, 0)


def test_a_missing_package_is_named_before_there_is_a_file(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(ImportError, match="need the package cramjam: pip install cramjam"):
        Writer(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    assert list(recordio.read_stream(io.BytesIO(written(tmp_path / "a", [b"x"])), "a")) == [b"x"]


def test_remote_files():
    with Writer("memory://records/a.recordio") as writer:
        writer.write(b"far away")
    assert list(recordio.read("memory://records/a.recordio")) == [b"far away"]


def test_tensors_come_back_with_their_sequences():
    ids = LoDTensor(np.arange(3, dtype="int64").reshape(3, 1), [[0, 1, 3]])
    record = recordio.pack_tensors([ids, np.array([0.5], "float32")])
    assert record[:4] == struct.pack("<I", 2)
    first, second = recordio.unpack_tensors(record)
    assert first.lod() == [[0, 1, 3]] and first.value.dtype == np.int64
    np.testing.assert_array_equal(first.value, ids.value)
    assert second.lod() == [] and second.value.tolist() == [0.5]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"\1", "it has 1 bytes"),
        (b"\1\0\0\0", "the file ends too early"),
        (b"\0\0\0\0x", "1 bytes follow the last one"),
        (recordio.pack_tensors([np.zeros(2)])[:-1], "the file ends too early"),
    ],
)
def test_records_without_tensors_are_refused(record, message):
    with pytest.raises(RecordIOError, match=f"the record does not hold tensors: {message}"):
        recordio.unpack_tensors(record)
