"""The ``.desc`` views of programs, blocks, operators and variables: methods of Fluid's C++ descs that scripts call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.program import Program
from refluid.ir.variable import Variable
from refluid.ir.vartype import VarType


class ProgramView:
    """``program.desc``"""

    def __init__(self, program: Program):
        self._program = program

    def serialize_to_string(self) -> bytes:
        """Returns the program as a ProgramDesc message."""
        from refluid.ir.protobuf import program_to_bytes

        return program_to_bytes(self._program)

    def num_blocks(self) -> int:
        return self._program.num_blocks

    def block(self, index: int) -> BlockView:
        return BlockView(self._program.block(index))


class BlockView:
    """``block.desc``"""

    def __init__(self, block: Block):
        self._block = block

    @property
    def id(self) -> int:
        return self._block.idx

    @property
    def parent(self) -> int:
        return self._block.parent_idx

    def op_size(self) -> int:
        return len(self._block.ops)

    def op(self, index: int) -> OpView:
        return OpView(self._block.ops[index])

    def append_op(self) -> OpView:
        """Appends a new operator without a type."""
        op = Operator(self._block, "")
        self._block.ops.append(op)
        self._block.program.changed()
        return OpView(op)

    def var(self, name: str | bytes) -> VarView:
        """Returns the variable with that name, creating it if needed."""
        name = name.decode() if isinstance(name, bytes) else name
        found = self._block.vars.get(name) or self._block.create_var(name=name)
        return VarView(found)

    def find_var(self, name: str | bytes) -> VarView | None:
        name = name.decode() if isinstance(name, bytes) else name
        found = self._block.vars.get(name)
        return None if found is None else VarView(found)

    def has_var(self, name: str | bytes) -> bool:
        return (name.decode() if isinstance(name, bytes) else name) in self._block.vars

    def all_vars(self) -> list[VarView]:
        return [VarView(variable) for variable in self._block.vars.values()]


def _reads(field: str) -> Callable[[Any], Any]:
    """A method that returns a field of the viewed object."""
    return lambda self: getattr(self._viewed, field)


def _writes(field: str) -> Callable[[Any, Any], None]:
    """A method that sets a field of the viewed object."""
    return lambda self, value: setattr(self._viewed, field, value)


def _calls(method: str) -> Callable[..., Any]:
    """A method that calls the one of that name of the viewed object."""
    return lambda self, *arguments: getattr(self._viewed, method)(*arguments)


class OpView:
    """``op.desc``"""

    def __init__(self, op: Operator):
        self._viewed = op

    type, input_names, output_names = _reads("type"), _reads("input_names"), _reads("output_names")
    input_arg_names, output_arg_names = _reads("input_arg_names"), _reads("output_arg_names")
    input, output = _calls("input"), _calls("output")
    attr, has_attr, attr_names, _set_attr = _calls("attr"), _calls("has_attr"), _reads("attr_names"), _calls("set_attr")
    _rename_input, _rename_output = _calls("rename_input"), _calls("rename_output")

    def set_type(self, type: str) -> None:
        self._viewed.type = type
        self._viewed.program.changed()

    def set_input(self, slot: str, names: list[str]) -> None:
        self._viewed.inputs[slot] = list(names)
        self._viewed.program.changed()

    def set_output(self, slot: str, names: list[str]) -> None:
        self._viewed.outputs[slot] = list(names)
        self._viewed.program.changed()

    def check_attrs(self) -> None:
        """Does nothing: attributes are checked during shape inference."""

    def infer_var_type(self, block: BlockView) -> None:
        """Does nothing: types are inferred together with shapes."""

    def infer_shape(self, block: BlockView) -> None:
        self._viewed.infer()


class VarView:
    """``var.desc``"""

    def __init__(self, variable: Variable):
        self._viewed = variable

    name, dtype, type, lod_level = _reads("name"), _reads("dtype"), _reads("type"), _reads("lod_level")
    persistable, need_check_feed = _reads("persistable"), _reads("need_check_feed")
    set_shape, set_dtype, set_type = _writes("shape"), _writes("dtype"), _writes("type")
    set_lod_level, set_persistable = _writes("lod_level"), _writes("persistable")
    set_need_check_feed = _writes("need_check_feed")

    def shape(self) -> list[int]:
        return list(self._viewed.shape)

    def shapes(self) -> list[list[int]]:
        """Returns the shapes of the tensors of a reader's batches."""
        return [list(tensor.shape) for tensor in self._viewed.read_tensors]

    def dtypes(self) -> list[VarType]:
        return [tensor.dtype for tensor in self._viewed.read_tensors]

    def lod_levels(self) -> list[int]:
        return [tensor.lod_level for tensor in self._viewed.read_tensors]
