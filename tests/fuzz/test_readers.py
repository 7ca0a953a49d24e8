"""Readers of files meet damaged and forged ones: a value or a clear error comes out, and nothing else happens.

Nothing else: no crash, no hang, no more memory than the reader's module promises; nothing is run, opened or imported.
REFLUID_FUZZ_EXAMPLES=100000 runs the long form: at least that many examples, shared among the readers.
"""

from __future__ import annotations

import io
import pickle
import struct
from random import Random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paddle.fluid as fluid
from fuzz.watching import PICKLE, PROGRAM, RECORDS, TENSOR, little_memory, many, try_to_read
from refluid.files import recordio
from refluid.files.pickle_writing import write_pickle
from refluid.files.pickles import read_pickle
from refluid.files.storage import at
from refluid.files.tensors import read_lod_tensor, read_selected_rows, write_lod_tensor, write_selected_rows
from refluid.ir import Program
from refluid.tensors import LoDTensor


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


def records(folder):
    for compressor in recordio.Compressor:
        path = f"memory://{folder}/{compressor.name}"
        with recordio.Writer(path, compressor, max_records=2) as writer:
            for i in range(3):
                writer.write(recordio.pack_tensors([np.full((2, 3), i), LoDTensor(np.ones((3, 1)), [[0, 1, 3]])]))
        yield at(path).read_bytes()


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


def tensors_of(data):
    return [recordio.unpack_tensors(record) for record in recordio.read_stream(io.BytesIO(data), "a.recordio")]


def program_of(data):
    program = Program.parse_from_string(data)
    program.desc.serialize_to_string()
    return program


def raw_pickle_of(data):
    """As `read_pickle` reads large arrays: bytes go where an array can have them."""
    with mock.patch("refluid.files.pickles._LARGE", 8):
        return read_pickle(data)


READERS = {
    "lod_tensor": (lod_tensor_of, TENSOR, list(lod_tensors())),
    "selected_rows": (selected_rows_of, TENSOR, list(selected_rows())),
    "recordio": (tensors_of, RECORDS, list(records("fuzz"))),
    "program": (program_of, PROGRAM, list(programs())),
    "pickle": (read_pickle, PICKLE, list(pickles())),
    "raw_pickle": (
        raw_pickle_of,
        PICKLE,
        [pickle.dumps({"x": np.arange(9.0), "y": [b"x" * 20, np.ones(3)]}, 4)],
    ),
}
each_reader = pytest.mark.parametrize(("read", "bound", "originals"), READERS.values(), ids=READERS)


@each_reader
def test_whole_files_are_read(read, bound, originals):
    for data in originals:
        assert read(data) is not None


@each_reader
def test_every_cut_is_an_error_or_a_value(traced_memory, read, bound, originals):
    for data in originals:
        read(data)  # what is imported and compiled once is not the reader's
        for end in range(min(len(data), 600)):
            try_to_read(read, data[:end], bound)


@each_reader
def test_damaged_files(traced_memory, read, bound, originals):
    @many
    @given(st.integers(0, 2**62))
    def check(seed):
        try_to_read(read, damaged(originals, seed), bound)

    read(originals[0])
    with little_memory():
        check()


@each_reader
def test_any_bytes(read, bound, originals):
    @many
    @given(st.binary(max_size=200))
    def check(data):
        try_to_read(read, data, bound)

    read(originals[0])
    with little_memory():
        check()


# Instructions of pickles that are whole by themselves: numbers, texts, containers, calls of good and evil functions
INSTRUCTIONS = [
    *(bytes([code]) for code in b"(0123NIabdehjlopqrstu)]}.\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94Rbis"),
    *(b"K" + bytes([n]) for n in (0, 1, 3)),
    *(b"h" + bytes([n]) for n in range(3)),
    *(b"q" + bytes([n]) for n in range(3)),
    *(
        b"X" + struct.pack("<I", len(text)) + text
        for text in (b"", b"f4", b"<", b"latin1", b"os", b"system", b"x" * 99)
    ),
    *(b"B" + struct.pack("<I", len(data)) + data for data in (b"", b"\x00" * 4, b"\x01" * 40)),
    *(
        b"c" + name.encode().replace(b".", b"\n") + b"\n"
        for name in ("os.system", "builtins.eval", "builtins.exec", "posix.system", "subprocess.Popen", "numpy.load")
    ),
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cnumpy.core.multiarray\nscalar\n",
    b"c_codecs\nencode\n",
    b"ccollections\nOrderedDict\n",
    b"J\xff\xff\xff\xff",
    b"I01\n",
]


def test_any_instructions_of_a_pickle(traced_memory):
    @many
    @given(st.lists(st.sampled_from(INSTRUCTIONS), max_size=60))
    def check(instructions):
        try_to_read(read_pickle, b"\x80\x02" + b"".join(instructions) + b".", PICKLE)

    with little_memory():
        check()


sizes = st.sampled_from(NUMBERS) | st.integers(0, 40)
described = st.binary(max_size=20) | st.builds(
    lambda dtype, dims: b"\x08" + bytes([dtype]) + b"".join(b"\x10" + varint(dim) for dim in dims),
    st.integers(0, 30),
    st.lists(sizes, max_size=5),
)


def varint(number):
    """A number as protobuf has it."""
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


@pytest.mark.parametrize("name", ["lod_tensor", "selected_rows"])
def test_any_header_of_a_tensor(traced_memory, name):
    read, bound, _ = READERS[name]

    @many
    @given(st.lists(sizes, max_size=4), described, st.integers(-1, 30), st.binary(max_size=60))
    def check(numbers, description, length, rest):
        header = struct.pack("<I", 0) + b"".join(struct.pack("<Q", number) for number in numbers)
        size = len(description) if length < 0 else length
        try_to_read(read, header + struct.pack("<Ii", 0, size) + description + rest, bound)

    with little_memory():
        check()
