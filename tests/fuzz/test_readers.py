"""Readers of files meet damaged and forged ones: a value or a clear error comes out, and nothing else happens.

REFLUID_FUZZ_EXAMPLES=100000 runs the long form: that many examples, shared among the readers.
"""

from __future__ import annotations

import io
import os
import pickle
import resource
import signal
import struct
import tracemalloc
from contextlib import contextmanager
from random import Random
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import paddle.fluid as fluid
from refluid.files.pickle_writing import write_pickle
from refluid.files.pickles import read_pickle
from refluid.files.tensors import read_lod_tensor, read_selected_rows, write_lod_tensor, write_selected_rows
from refluid.ir import Program

EXAMPLES = int(os.environ.get("REFLUID_FUZZ_EXAMPLES", "400"))
SECONDS = 30  # no example may take that long
ALLOWED = 16 << 20  # bytes that a reader may use besides 16 times the file, as its module says
many = settings(
    max_examples=max(EXAMPLES // 10, 10),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture
def traced_memory():
    tracemalloc.start()
    yield
    tracemalloc.stop()


@contextmanager
def watched(size):
    """Raises where the block hangs or, if memory is traced, takes more of it than it may."""

    def give_up(*_):
        raise RuntimeError(f"a reader works for {SECONDS} seconds on {size} bytes")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    tracemalloc.reset_peak()
    start, _ = tracemalloc.get_traced_memory()
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert tracemalloc.get_traced_memory()[1] - start <= 16 * size + ALLOWED


@contextmanager
def little_memory():
    """Raises where the process has grown by much more than any one file could make it, and hypothesis takes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10  # in KB


def try_to_read(read, data):
    with watched(len(data)):
        try:
            return read(data)
        except ValueError as error:
            assert str(error)
    return None


def stream_of(write, *arguments):
    stream = io.BytesIO()
    write(stream, *arguments)
    return stream.getvalue()


def lod_tensors():
    yield stream_of(write_lod_tensor, np.arange(6, dtype="float32").reshape(2, 3))
    yield stream_of(write_lod_tensor, np.arange(5, dtype="int64").reshape(5, 1), [[0, 1, 2], [0, 2, 5]])
    yield stream_of(write_lod_tensor, np.zeros((0, 4), "int8"))


def selected_rows():
    yield stream_of(write_selected_rows, [1, 5, 7], 10, np.ones((3, 2), "float64"))


def programs():
    for with_loop in (False, True):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x = fluid.layers.data("x", [4])
            loss = fluid.layers.mean(fluid.layers.fc(x, 2, act="relu"))
            if with_loop:
                inner = main._create_block()
                main._rollback()
                main.global_block().append_op(type="feed", outputs={"Out": x}, attrs={"col": 0, "sub_block": inner})
            else:
                fluid.optimizer.Adam(0.1).minimize(loss)
        yield main.desc.serialize_to_string()


def pickles():
    arrays = {"w": np.arange(6, dtype="float32").reshape(2, 3), "b": np.array([-1, 200], "int16")}
    yield stream_of(write_pickle, arrays)
    plain = {"x": [1, 2.5, None, True, "text", b"bytes", (1, 2**70)], "y": np.float32(2), **arrays}
    for protocol in range(1, 5):
        yield pickle.dumps(plain, protocol)


NUMBERS = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


def damaged(originals, seed):
    """A file with bytes changed, taken out, put in, repeated, cut off, or replaced by extreme numbers."""
    random = Random(seed)
    data = random.choice(originals)
    for _ in range(random.randint(1, 4)):
        place = random.randint(0, len(data))
        size = random.randint(0, 8)
        number = random.choice(NUMBERS)
        new = random.choice([random.randbytes(size), struct.pack("<Q", number), struct.pack("<I", number & 0xFFFFFFFF)])
        data = random.choice(
            [
                data[:place] + new + data[place + len(new) :],
                data[:place] + new + data[place:],
                data[:place] + data[place + size :],
                data[:place] + data[place : place + 64] * (1 + size) + data[place + 64 :],
                data[:place],
            ]
        )
    return data


def lod_tensor_of(data):
    return read_lod_tensor(io.BytesIO(data))


def selected_rows_of(data):
    return read_selected_rows(io.BytesIO(data))


def program_of(data):
    program = Program.parse_from_string(data)
    program.desc.serialize_to_string()
    return program


def raw_pickle_of(data):
    """As `read_pickle` reads large arrays: bytes go where an array can have them."""
    with mock.patch("refluid.files.pickles._LARGE", 8):
        return read_pickle(data)


READERS = {
    "lod_tensor": (lod_tensor_of, list(lod_tensors())),
    "selected_rows": (selected_rows_of, list(selected_rows())),
    "program": (program_of, list(programs())),
    "pickle": (read_pickle, list(pickles())),
    "raw_pickle": (raw_pickle_of, [pickle.dumps({"x": np.arange(9.0), "y": [b"x" * 20, np.ones(3)]}, 4)]),
}
each_reader = pytest.mark.parametrize(("read", "originals"), READERS.values(), ids=READERS)


@each_reader
def test_whole_files_are_read(read, originals):
    for data in originals:
        assert read(data) is not None


@each_reader
def test_every_cut_is_an_error_or_a_value(read, originals):
    for data in originals:
        for end in range(min(len(data), 600)):
            try_to_read(read, data[:end])


@each_reader
def test_damaged_files(read, originals):
    @many
    @given(st.integers(0, 2**62))
    def check(seed):
        try_to_read(read, damaged(originals, seed))

    with little_memory():
        check()


@each_reader
def test_any_bytes(read, originals):
    @many
    @given(st.binary(max_size=200))
    def check(data):
        try_to_read(read, data)

    with little_memory():
        check()


def _tensor_with(dims, dtype=5):
    from refluid.ir.protobuf import pb

    desc = pb.VarType.TensorDesc(data_type=dtype, dims=dims).SerializeToString()
    return struct.pack("<IQIi", 0, 0, 0, len(desc)) + desc


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (lod_tensor_of, _tensor_with([2**40, 2**40])),
        (lod_tensor_of, _tensor_with([0, 2**62])),
        (lod_tensor_of, _tensor_with([2**33])),
        (lod_tensor_of, _tensor_with([1] * 5000)),
        (lod_tensor_of, _tensor_with([-1])),
        (lod_tensor_of, struct.pack("<IQQ", 0, 1, 2**60)),
        (lod_tensor_of, struct.pack("<IQ", 0, 2**60)),
        (selected_rows_of, struct.pack("<IQ", 0, 2**61)),
        (read_pickle, b"\x80\x02]r\xff\xff\xff\x7f."),  # the standard reader makes room for 2 ** 32 names
        (read_pickle, b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"."),
        (read_pickle, b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"."),
        (read_pickle, b"L" + b"9" * 100000 + b"L\n."),
        (read_pickle, b"\x80\x02" + b"]" * 2_000_000 + b"."),
        (read_pickle, b"\x80\x02]q\x00" + b"]a" * 2000 + b"."),
        (read_pickle, b"\x80\x02]q\x00h\x00a."),  # a list in itself
        (read_pickle, b"\x80\x02" + b"(" * 100000 + b"t" * 100000 + b"."),
    ],
)
def test_forged_sizes_take_no_memory(traced_memory, read, data):
    try_to_read(read, data)


def test_a_string_that_is_used_often_does_not_become_much_memory(traced_memory):
    text = b"X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20) + b"q\x00"
    call = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    data = b"\x80\x02(" + text + call * 3000 + b"t."
    with watched(len(data)), pytest.raises(ValueError, match="much larger than its file"):
        read_pickle(data)


def test_many_blocks_are_read_in_time():
    from refluid.ir.protobuf import pb

    message = pb.ProgramDesc()
    for index in range(20000):
        message.blocks.add(idx=index, parent_idx=index - 1)
    with watched(1 << 20), pytest.raises(ValueError, match="inside each other"):
        Program.parse_from_string(message.SerializeToString())
