"""Files that were forged to take much memory or time."""

from __future__ import annotations

import io
import struct

import pytest

from fuzz.watching import PICKLE, PROGRAM, TENSOR, try_to_read, watched
from refluid.files.pickles import read_pickle
from refluid.files.tensors import read_lod_tensor, read_selected_rows
from refluid.ir import Program
from refluid.ir.protobuf import pb


def lod_tensor_of(data):
    return read_lod_tensor(io.BytesIO(data))


def selected_rows_of(data):
    return read_selected_rows(io.BytesIO(data))


def _tensor_with(dims, dtype=5):
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
        (read_pickle, b"\x80\x02" + b"]" * 300_000 + b"."),
        (read_pickle, b"\x80\x02]q\x00" + b"]a" * 2000 + b"."),
        (read_pickle, b"\x80\x02]q\x00h\x00a."),  # a list in itself
        (read_pickle, b"\x80\x02" + b"(" * 100000 + b"t" * 100000 + b"."),
    ],
)
def test_forged_sizes_take_no_memory(traced_memory, read, data):
    try_to_read(read, data, PICKLE if read is read_pickle else TENSOR)


def test_a_string_that_is_used_often_does_not_become_much_memory(traced_memory):
    text = b"X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20) + b"q\x00"
    call = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    data = b"\x80\x02(" + text + call * 3000 + b"t."
    with watched(PICKLE(len(data))), pytest.raises(ValueError, match="much larger than its file"):
        read_pickle(data)


def test_many_blocks_are_read_in_time():
    message = pb.ProgramDesc()
    for index in range(20000):
        message.blocks.add(idx=index, parent_idx=index - 1)
    with watched(1 << 30), pytest.raises(ValueError, match="nested more than"):
        Program.parse_from_string(message.SerializeToString())


@pytest.mark.parametrize("part", ["ops", "variables", "attributes", "slots", "blocks"])
def test_many_small_parts_of_a_program_take_what_is_promised(traced_memory, part):
    message = pb.ProgramDesc()
    block = message.blocks.add(idx=0, parent_idx=-1)
    op = block.ops.add(type="a")
    for i in range(5000):
        if part == "ops":
            block.ops.add(type="a")
        elif part == "variables":
            block.vars.add(name=f"{i:x}").type.type = 7
        elif part == "attributes":
            op.attrs.add(name=f"{i:x}", type=0, i=1)
        elif part == "slots":
            op.inputs.add(parameter=f"{i:x}", arguments=["a"])
        else:
            message.blocks.add(idx=i + 1, parent_idx=0)
    try_to_read(Program.parse_from_string, message.SerializeToString(), PROGRAM)
