"""Pickles of plain data are read without running anything, and written for old readers."""

import io
import os
import pickle
import pickletools

import numpy as np
import pytest

from refluid.files.pickle_writing import write_pickle
from refluid.files.pickles import PickleError, read_pickle

ARRAYS = {
    "float32": np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3),
    "float64": np.array([np.pi, np.inf, np.nan]),
    "float16": np.arange(300, dtype="float16"),
    "int8": np.arange(-3, 3, dtype="int8"),
    "uint8": np.arange(256, dtype="uint8"),
    "int64": np.array([[2**40, -1]]),
    "bool": np.array([True, False]),
    "empty": np.zeros((0, 3), "int32"),
    "no dims": np.array(2.5),
    "名字": np.ones(1, "int16"),
}


def written(arrays):
    stream = io.BytesIO()
    write_pickle(stream, arrays)
    return stream.getvalue()


def assert_same(got, expected):
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape
        np.testing.assert_array_equal(got[name], array)


@pytest.mark.parametrize("read", [read_pickle, pickle.loads])
def test_what_is_written_is_read_here_and_by_python(read):
    assert_same(read(written(ARRAYS)), ARRAYS)


def test_what_is_written_names_only_what_old_numpy_has():
    codes = list(pickletools.genops(written(ARRAYS)))
    assert {argument for code, argument, _ in codes if code.name == "GLOBAL"} == {
        "numpy.core.multiarray _reconstruct",
        "numpy ndarray",
        "numpy dtype",
        "_codecs encode",
    }
    assert max(code.proto for code, _, _ in codes) == 2


@pytest.mark.parametrize("read", [read_pickle, pickle.loads, lambda data: pickle.loads(data, encoding="latin1")])
def test_a_large_array_is_written_as_it_is(read):
    arrays = {"large": np.arange(1 << 18, dtype="float32").reshape(4, -1), "small": np.ones(2, "int8")}
    data = written(arrays)
    assert len(data) < arrays["large"].nbytes + 1000
    assert_same(read(data), arrays)


def test_large_arrays_are_ready_for_jax_and_not_shared():
    array = np.arange(1 << 17, dtype=">f4")
    values = {"big endian": array, "twice": [np.arange(1 << 16), array.astype("f4")], "bytes": b"\x80" * (1 << 17)}
    got = read_pickle(pickle.dumps(values, 3))
    assert got["bytes"] == values["bytes"]
    assert got["twice"][0].ctypes.data % 64 == 0
    for found, expected in ((got["big endian"], array), (got["twice"][0], values["twice"][0])):
        np.testing.assert_array_equal(found, expected)
        found[0] += 1  # the array belongs to the caller
    raw = b"c" + b"numpy.core.multiarray\n_reconstruct\n"
    make = raw + b"cnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01J\x00\x00\x02\x00\x85cnumpy\ndtype\n"
    make += b"X\x02\x00\x00\x00i1\x89\x88\x87R(K\x03X\x01\x00\x00\x00|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    first = make + b"B\x00\x00\x02\x00" + bytes(1 << 17) + b"q\x00tb"
    one, other = read_pickle(b"\x80\x03(" + first + make + b"h\x00tbt.")
    one[0] = 1
    assert other[0] == 0  # two arrays of the same bytes are two


@pytest.mark.parametrize("protocol", [1, 2, 3, 4])
def test_arrays_that_python_pickled_are_read(protocol):
    assert_same(read_pickle(pickle.dumps(ARRAYS, protocol)), ARRAYS)


def test_plain_values_and_shared_ones_are_read():
    array = np.arange(3)
    value = {
        "numbers": [1, -1, 300, 70000, 2**40, -(2**70), 1.5, True, False, None],
        "texts": ("a", "名", b"\xff\x00"),
        "scalar": np.float32(1.5),
        "nested": {"list": [[], {}, ()]},
        "twice": [array, array],
        "big endian": np.arange(3, dtype=">i4"),
        "by columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    }
    got = read_pickle(pickle.dumps(value, 2))
    assert got["numbers"] == value["numbers"] and got["texts"] == value["texts"] and got["nested"] == value["nested"]
    assert got["scalar"] == 1.5 and got["scalar"].dtype == np.float32
    assert got["twice"][0] is got["twice"][1]
    np.testing.assert_array_equal(got["big endian"], [0, 1, 2])
    np.testing.assert_array_equal(got["by columns"], value["by columns"])


def test_arrays_that_were_read_may_be_changed():
    array = read_pickle(written({"w": np.zeros(2)}))["w"]
    array += 1
    assert array.tolist() == [1, 1]


class Evil:
    def __init__(self, function, *arguments):
        self.result = function, arguments

    def __reduce__(self):
        return self.result


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("inside", [False, True])
def test_a_pickle_that_calls_something_is_refused_and_nothing_is_called(tmp_path, protocol, inside):
    target = tmp_path / "made by the pickle"
    for evil in (Evil(os.system, f"touch '{target}'"), Evil(open, str(target), "w"), Evil(eval, "1 / 0")):
        value = {"w": np.zeros(2), "evil": evil} if inside else evil
        with pytest.raises(PickleError):
            read_pickle(pickle.dumps(value, protocol))
    assert not target.exists()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"cposix\nsystem\n(X\x04\x00\x00\x00trueR.", "posix.system"),
        (b"(X\x04\x00\x00\x00trueios\nsystem\n.", "0x69"),  # INST
        (b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.", "encoding"),
        (b"\x80\x02c_codecs\nencode\n}b.", "not an array"),  # state for a function
        (b"\x80\x02c_codecs\nencode\n.", "function"),
        (b"\x80\x02cnumpy\nndarray\n)R.", "ndarray itself"),
        (b"\x80\x02cnumpy\ndtype\nX\x01\x00\x00\x00O\x85R.", "only numbers"),
        (b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00f4\x85R.", "Unfinished"),
        (b"\x80\x02cnumpy\nload\n.", "numpy.load"),
        (b"\x80\x02}K\x01K\x02s.", "int as a key"),
        (b"\x80\x02P1\n.", "0x50"),  # a persistent name
        (b"\x80\x02\x82\x01.", "0x82"),  # the extension registry
        (b"\x80\x02K\x01K\x02.", "2 values"),
        (b"\x80\x02", "ends too early"),
        (b"", "ends too early"),
        (b"\x80\x02h\x05.", "damaged"),
        (b"\x80\x02t.", "damaged"),
        (b"\x80\x02\x8aC" + b"x" * 67, "ends too early"),
    ],
)
def test_what_is_not_plain_data_is_refused(data, problem):
    with pytest.raises(PickleError, match=problem):
        read_pickle(data)


def test_an_array_must_have_as_many_bytes_as_its_shape_says():
    data = written({"w": np.zeros((2, 3), "float32")})
    with pytest.raises(PickleError, match="24 bytes for an array of shape"):
        read_pickle(data.replace(b"J\x02\x00\x00\x00J\x03", b"J\x02\x00\x00\x00J\x04"))
