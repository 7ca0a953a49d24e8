"""Conversion of programs to and from Fluid's ProgramDesc messages.

Reading an untrusted message takes at most 200 times its size plus 16 MB; many tiny operators are the worst case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from refluid.errors import PythonCodeError
from refluid.ir import framework_pb2
from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.overwritten import connect_overwritten, named_inputs, named_outputs
from refluid.ir.program import Program
from refluid.ir.variable import ReadTensor, Variable
from refluid.ir.vartype import VarType

pb: Any = framework_pb2  # generated: its names exist only at run time

VERSION = 1008005  # as written by Fluid 1.8.5
_MAX_DEPTH = 64  # of nested blocks

# Attributes that Fluid adds to every op, with their types: an empty list does not reveal its own.
_EVERY_OP = {
    "op_role": "INT",
    "op_role_var": "STRINGS",
    "op_namescope": "STRING",
    "op_callstack": "STRINGS",
    "op_device": "STRING",
}

# AttrType -> the field of OpDesc.Attr that holds the value
_FIELDS = {
    pb.INT: "i",
    pb.FLOAT: "f",
    pb.STRING: "s",
    pb.INTS: "ints",
    pb.FLOATS: "floats",
    pb.STRINGS: "strings",
    pb.BOOLEAN: "b",
    pb.BOOLEANS: "bools",
    pb.BLOCK: "block_idx",
    pb.LONG: "l",
    pb.BLOCKS: "blocks_idx",
    pb.LONGS: "longs",
}
_LISTS = frozenset({pb.INTS, pb.FLOATS, pb.STRINGS, pb.BOOLEANS, pb.BLOCKS, pb.LONGS})


def program_to_bytes(program: Program) -> bytes:
    """Serializes a program as a ProgramDesc."""
    return program_to_message(program).SerializeToString()


def program_from_bytes(data: bytes) -> Program:
    """Parses a serialized ProgramDesc."""
    message = pb.ProgramDesc()
    try:
        message.ParseFromString(bytes(data))
    except DecodeError as error:
        raise ValueError(f"these {len(data)} bytes are not a Fluid program: {error}") from error
    if not message.blocks:
        raise ValueError("the program has no blocks")
    return program_from_message(message)


def program_to_message(program: Program) -> Any:
    message = pb.ProgramDesc()
    message.version.version = VERSION
    for block in program.blocks:
        _fill_block(message.blocks.add(), block)
    return message


def to_message(described: Program | Block | Operator | Variable) -> Any:
    """The message that describes a program or a part of one."""
    if isinstance(described, Program):
        return program_to_message(described)
    if isinstance(described, Block):
        _fill_block(message := pb.BlockDesc(), described)
    elif isinstance(described, Operator):
        _fill_operator(message := pb.OpDesc(), described)
    else:
        _fill_variable(message := pb.VarDesc(), described)
    return message


def _fill_block(out: Any, block: Block) -> None:
    out.idx, out.parent_idx = block.idx, block.parent_idx
    if block.forward_block_idx != -1:
        out.forward_block_idx = block.forward_block_idx
    for variable in block.vars.values():
        _fill_variable(out.vars.add(), variable)
    for op in block.ops:
        _fill_operator(out.ops.add(), op)


def program_from_message(message: Any) -> Program:
    program = Program()
    program.blocks = [Block(program, block.idx, block.parent_idx) for block in message.blocks]
    depths: list[int] = []
    for place, (source, block) in enumerate(zip(message.blocks, program.blocks, strict=True)):
        if block.idx != place or not -1 <= block.parent_idx < max(place, 1):
            raise ValueError(f"block {block.idx} of the program has an invalid position (parent {block.parent_idx})")
        depths.append(1 + depths[block.parent_idx] if block.parent_idx >= 0 and place else 0)
        if depths[-1] > _MAX_DEPTH:
            raise ValueError(f"the blocks of the program are nested more than {_MAX_DEPTH} levels deep")
        block.forward_block_idx = source.forward_block_idx
        for described in source.vars:
            block.vars[_name(described.name)] = _variable(block, described)
        for described in source.ops:
            block.ops.append(_operator(block, described))
    for block in program.blocks:
        for op in block.ops:
            for name in op.output_arg_names:
                written = block.find_var_recursive(name)
                if written is not None:
                    written.op = op
    connect_overwritten(program)
    return program


def _fill_variable(out: Any, variable: Variable) -> None:
    out.name = variable.name
    out.type.type = int(variable.type)
    out.persistable = variable.persistable
    if variable.need_check_feed:
        out.need_check_feed = True
    if variable.type == VarType.SELECTED_ROWS:
        _fill_tensor(out.type.selected_rows, variable)
    elif variable.type == VarType.LOD_TENSOR:
        _fill_tensor(out.type.lod_tensor.tensor, variable)
        out.type.lod_tensor.lod_level = variable.lod_level
    elif variable.type == VarType.LOD_TENSOR_ARRAY:
        _fill_tensor(out.type.tensor_array.tensor, variable)
        out.type.tensor_array.lod_level = variable.lod_level
    elif variable.type == VarType.READER:
        for tensor in variable.read_tensors:
            described = out.type.reader.lod_tensor.add(lod_level=tensor.lod_level)
            _fill_tensor(described.tensor, tensor)


def _fill_tensor(out: Any, variable: Variable | ReadTensor) -> None:
    out.data_type = int(variable.dtype)
    out.dims.extend(variable.shape)


def _variable(block: Block, described: Any) -> Variable:
    type = VarType(described.type.type)
    variable = Variable(block, type=type, name=described.name, persistable=described.persistable)
    variable.need_check_feed = described.need_check_feed
    holder = {VarType.LOD_TENSOR: described.type.lod_tensor, VarType.LOD_TENSOR_ARRAY: described.type.tensor_array}.get(
        type
    )
    if holder is not None and holder.HasField("tensor"):
        variable._shape, variable._dtype = tuple(holder.tensor.dims), VarType(holder.tensor.data_type)
        variable._lod_level = holder.lod_level
    elif type == VarType.SELECTED_ROWS and described.type.HasField("selected_rows"):
        rows = described.type.selected_rows
        variable._shape, variable._dtype = tuple(rows.dims), VarType(rows.data_type)
    elif type == VarType.READER:
        variable.read_tensors = tuple(
            ReadTensor(tuple(each.tensor.dims), VarType(each.tensor.data_type), each.lod_level)
            for each in described.type.reader.lod_tensor
        )
    return variable


def _fill_operator(out: Any, op: Operator) -> None:
    out.type = op.type
    for field, by_slot in ((out.inputs, named_inputs(op)), (out.outputs, named_outputs(op))):
        for slot, names in sorted(by_slot.items()):
            field.add(parameter=slot, arguments=names)
    for name, value in sorted(op.attrs.items()):
        try:
            type = attr_type(op.type, name, value)
        except TypeError as error:
            plain = op.error(f"it calls Python code ({value!r}), so the program cannot be written as a ProgramDesc")
            hint = (
                "refluid.export writes inference programs with such operators as StableHLO; fluid.io.save_params and "
                "save_persistables save parameters"
            )
            raise PythonCodeError(
                plain.op_type, plain.problem, plain.arguments, plain.attrs, plain.written_at, hint
            ) from error
        attr = out.attrs.add(name=name, type=type)
        convert = _CONVERT.get(type, lambda v: v)
        if type in _LISTS:
            getattr(attr, _FIELDS[type]).extend(convert(item) for item in value)
        else:
            setattr(attr, _FIELDS[type], convert(value))


_CONVERT: dict[int, Callable[[Any], Any]] = {
    pb.INT: int,
    pb.INTS: int,
    pb.LONG: int,
    pb.LONGS: int,
    pb.FLOAT: float,
    pb.FLOATS: float,
    pb.BOOLEAN: bool,
    pb.BOOLEANS: bool,
    pb.STRING: lambda v: v.decode() if isinstance(v, bytes) else str(v),
    pb.BLOCK: lambda block: block.idx,
    pb.BLOCKS: lambda block: block.idx,
}


def _operator(block: Block, described: Any) -> Operator:
    op = Operator(block, _name(described.type))
    op.inputs = {_name(slot.parameter): [*map(_name, slot.arguments)] for slot in described.inputs if slot.arguments}
    op.outputs = {_name(slot.parameter): [*map(_name, slot.arguments)] for slot in described.outputs if slot.arguments}
    for attr in described.attrs:
        value = getattr(attr, _FIELDS[attr.type])
        if attr.type == pb.BLOCK:
            value = _block(block, value)
        elif attr.type == pb.BLOCKS:
            value = [_block(block, index) for index in value]
        elif attr.type in _LISTS:
            value = [_readable(item) for item in value]
        op.attrs[_name(attr.name)] = _readable(value)
    return op


def _name(text: Any) -> str:
    """Returns a name; protobuf yields bytes for text that is not UTF-8."""
    if isinstance(text, bytes):
        raise ValueError(f"the program has a name that is not text: {text[:40]!r}")
    return text


def _readable(value: Any) -> Any:
    """Decodes text in other encodings, such as source lines of Python 2 scripts, as far as possible."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _block(block: Block, index: int) -> Block:
    """Returns a block that an op of ``block`` runs; it must come later, so that no block can run itself."""
    blocks = block.program.blocks
    if not block.idx < index < len(blocks):
        raise ValueError(f"an op of block {block.idx} refers to block {index}, but the program has {len(blocks)}")
    return blocks[index]


def attr_type(op_type: str, name: str, value: Any) -> int:
    """Returns the AttrType of an attribute: Fluid's for known ops, otherwise derived from the value."""
    known = _known_attr_types()
    forward = op_type
    while forward not in known and forward.endswith("_grad"):
        forward = forward.removesuffix("_grad")
    declared = _EVERY_OP.get(name) or known.get(forward, {}).get(name)
    if declared is not None:
        return pb.AttrType.Value(declared)
    return _type_of(value)


def _type_of(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return _type_of(value[:1].tolist())
    if isinstance(value, list):
        if not value:
            return pb.INTS
        kinds = {_type_of(item) for item in value}
        plural = {
            pb.INT: pb.INTS,
            pb.LONG: pb.LONGS,
            pb.FLOAT: pb.FLOATS,
            pb.STRING: pb.STRINGS,
            pb.BOOLEAN: pb.BOOLEANS,
            pb.BLOCK: pb.BLOCKS,
        }
        order: list[int] = [pb.BOOLEAN, pb.INT, pb.LONG, pb.FLOAT, pb.STRING, pb.BLOCK]
        return plural[max(kinds, key=order.index)]
    if isinstance(value, bool):
        return pb.BOOLEAN
    if isinstance(value, int):
        return pb.INT if -(2**31) <= value < 2**31 else pb.LONG
    if isinstance(value, float):
        return pb.FLOAT
    if isinstance(value, str | bytes):
        return pb.STRING
    if isinstance(value, Block):
        return pb.BLOCK
    raise TypeError(f"an attribute cannot hold {type(value).__name__}")


@cache
def _known_attr_types() -> dict[str, dict[str, str]]:
    return json.loads((files("refluid.ir") / "attr_types.json").read_text())
