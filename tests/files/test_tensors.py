"""Fluid's tensor streams: what is written is read, and what is damaged is refused."""

import io
import struct

import ml_dtypes
import numpy as np
import pytest

from refluid.files.tensors import (
    TensorFileError,
    read_lod_tensor,
    read_selected_rows,
    write_holder,
    write_lod_tensor,
    write_selected_rows,
)

DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", ml_dtypes.bfloat16]


def stream_of(write, *arguments):
    stream = io.BytesIO()
    write(stream, *arguments)
    stream.seek(0)
    return stream


def again(holder):
    return stream_of(write_holder, holder).getvalue()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (2, 3), (0, 4), (3, 1, 2)])
def test_every_dtype_comes_back_bit_by_bit(dtype, shape):
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    stream = stream_of(write_lod_tensor, array)
    data = stream.getvalue()
    tensor = read_lod_tensor(stream)
    assert tensor.value.dtype == array.dtype and tensor.shape() == list(shape)
    np.testing.assert_array_equal(np.asarray(tensor.value), array)
    assert again(tensor) == data
    assert stream.read() == b""


def test_the_bytes_are_those_of_fluid():
    data = stream_of(write_lod_tensor, np.array([[1, 2]], "int32"), [[0, 1]]).getvalue()
    assert data == bytes.fromhex(
        "00000000 0100000000000000 1000000000000000 0000000000000000 0100000000000000"  # version, levels, offsets
        "00000000 06000000 0802 1001 1002 01000000 02000000"  # version, description, elements
    )


def test_arrays_that_are_not_in_order_are_put_in_order():
    array = np.arange(12, dtype="float32").reshape(3, 4)
    for view in (array.T, array[:, ::2], np.asfortranarray(array), array.astype(">f4").astype("float32")):
        np.testing.assert_array_equal(np.asarray(read_lod_tensor(stream_of(write_lod_tensor, view)).value), view)


def test_sequences_come_back():
    lod = [[0, 2, 3], [0, 1, 4, 6]]
    tensor = read_lod_tensor(stream_of(write_lod_tensor, np.arange(6).reshape(6, 1), lod))
    assert tensor.lod() == lod


def test_selected_rows_come_back():
    rows = read_selected_rows(stream_of(write_selected_rows, [7, 0, 7], 9, np.ones((3, 2), "float64")))
    assert (rows.rows(), rows.height(), rows.get_tensor().shape()) == ([7, 0, 7], 9, [3, 2])
    assert again(rows) == stream_of(write_selected_rows, [7, 0, 7], 9, np.ones((3, 2))).getvalue()


@pytest.mark.parametrize(
    ("lod", "problem"),
    [
        ([[0, 1, 2, 4]], "last offset is 4"),
        ([[1, 3]], "start with 0"),
        ([[0, 2, 1, 3]], "decrease"),
        ([[0, 3, 1]], "decrease"),
    ],
)
def test_offsets_must_fit(lod, problem):
    with pytest.raises(TensorFileError, match=problem):
        read_lod_tensor(stream_of(write_lod_tensor, np.zeros((3, 1)), lod))


def test_errors_say_what_is_wrong():
    good = stream_of(write_lod_tensor, np.zeros((3, 2), "float32")).getvalue()
    for data, problem in (
        (good[:-1], "ends too early: 24 bytes are missing, 23 are left"),
        (b"\1" + good[1:], "not a LoDTensor: version 1"),
        (good[:12] + b"\2" + good[13:], "not a tensor: version 2"),
        (b"text, not a tensor", "not a LoDTensor"),
        (good[:20] + b"\x08\x11" + good[22:], "17 is not the number of a dtype"),
        (struct.pack("<IQQ", 0, 1, 7) + bytes(7), "a level of 7 bytes"),
    ):
        with pytest.raises(TensorFileError, match=problem):
            read_lod_tensor(io.BytesIO(data))
    with pytest.raises(TensorFileError, match="2 rows, values of shape"):
        read_selected_rows(stream_of(write_selected_rows, [0, 1], 5, np.zeros((1, 2))))
