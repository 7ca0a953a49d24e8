"""Programs survive Fluid's protobuf form."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paddle.fluid as fluid
from refluid.ir import Program
from refluid.ir import framework_pb2 as pb
from refluid.ir.protobuf import attr_type, program_from_bytes, program_to_bytes

NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=8)
ATTRS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.text(max_size=8),
    st.floats(width=32, allow_nan=False),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=4),
    st.lists(st.integers(2**31, 2**40), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=1, max_size=3),
    st.lists(st.text(max_size=4), min_size=1, max_size=3),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=3),
)


def test_a_training_program_survives():
    x = fluid.layers.data("x", [13])
    y = fluid.layers.data("y", [1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.Adam(0.01).minimize(loss)
    program = fluid.default_main_program()
    data = program.desc.serialize_to_string()
    again = Program.parse_from_string(data)
    assert again.desc.serialize_to_string() == data
    for ours, theirs in zip(program.global_block().ops, again.global_block().ops, strict=True):
        assert (ours.type, ours.inputs, ours.outputs) == (theirs.type, theirs.inputs, theirs.outputs)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.lists(st.integers(-1, 2**40), max_size=4),
    attrs=st.dictionaries(NAMES, ATTRS, max_size=5),
    names=st.lists(NAMES, min_size=1, max_size=3, unique=True),
    persistable=st.booleans(),
)
def test_any_operator_and_variable_survive(shape, attrs, names, persistable):
    program = Program()
    block = program.global_block()
    for name in names:
        block.create_var(name=name, shape=shape, dtype="int64", persistable=persistable, lod_level=2)
    op = block.desc.append_op()
    op.set_type("somebody_elses_op")
    op.set_input("X", names)
    for name, value in attrs.items():
        op._set_attr(name, value)
    again = Program.parse_from_string(program.desc.serialize_to_string()).global_block()
    assert again.ops[0].inputs == {"X": names}
    assert again.ops[0].attrs == attrs
    assert [(v.shape, v.lod_level, v.persistable) for v in again.vars.values()] == [
        (tuple(shape), 2, persistable) for _ in names
    ]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_garbage_is_refused_or_read_but_never_crashes(data):
    with contextlib.suppress(ValueError):
        Program.parse_from_string(data)


def test_attributes_have_the_types_real_fluid_declares():
    assert attr_type("scale", "scale", 2) == pb.FLOAT
    assert attr_type("dropout", "dropout_prob", 1) == pb.FLOAT
    assert attr_type("elementwise_add_grad", "axis", -1) == pb.INT
    assert attr_type("unheard_of", "axis", 2**40) == pb.LONG


def test_sub_blocks_are_references():
    program = Program()
    body = program._create_block()
    program._rollback()
    op = program.global_block().desc.append_op()
    op.set_type("while")
    op._set_attr("sub_block", body)
    again = Program.parse_from_string(program.desc.serialize_to_string())
    assert again.global_block().ops[0].attrs["sub_block"] is again.block(1)
    assert again.block(1).parent is again.global_block()


def test_a_dangling_block_reference_is_refused():
    message = pb.ProgramDesc()
    block = message.blocks.add(idx=0, parent_idx=-1)
    block.ops.add(type="while").attrs.add(name="sub_block", type=pb.BLOCK, block_idx=7)
    with pytest.raises(ValueError, match="refers to block 7"):
        Program.parse_from_string(message.SerializeToString())


def test_texts_in_other_encodings_are_read_but_names_must_be_text():
    data = program_to_bytes(Program())
    other = "数".encode("gbk")
    message = pb.ProgramDesc()
    message.ParseFromString(data)
    op = message.blocks[0].ops.add(type="scale")
    op.attrs.add(name="op_callstack", type=pb.STRINGS, strings=["@@@@"])
    read = program_from_bytes(message.SerializeToString().replace(b"@@@@", other * 2))
    assert "\ufffd" in read.global_block().ops[0].attrs["op_callstack"][0]
    op.type = "####"
    with pytest.raises(ValueError, match="a name that is not text"):
        program_from_bytes(message.SerializeToString().replace(b"####", other * 2))


def test_a_block_cannot_run_itself_or_one_before_it():
    message = pb.ProgramDesc()
    message.blocks.add(idx=0, parent_idx=-1)
    op = message.blocks.add(idx=1, parent_idx=0).ops.add(type="while")
    op.attrs.add(name="sub_block", type=pb.BLOCK, block_idx=1)
    with pytest.raises(ValueError, match="an op of block 1 refers to block 1"):
        program_from_bytes(message.SerializeToString())
