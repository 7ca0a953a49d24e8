"""The ``.desc`` views of programs, blocks, operators and variables: methods of Fluid's C++ descs that scripts call."""

from __future__ import annotations

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


class OpView:
    """``op.desc``"""

    def __init__(self, op: Operator):
        self._op = op

    def type(self) -> str:
        return self._op.type

    def set_type(self, type: str) -> None:
        self._op.type = type
        self._op.program.changed()

    def input(self, slot: str) -> list[str]:
        return self._op.input(slot)

    def output(self, slot: str) -> list[str]:
        return self._op.output(slot)

    def set_input(self, slot: str, names: list[str]) -> None:
        self._op.inputs[slot] = list(names)
        self._op.program.changed()

    def set_output(self, slot: str, names: list[str]) -> None:
        self._op.outputs[slot] = list(names)
        self._op.program.changed()

    def input_names(self) -> list[str]:
        return self._op.input_names

    def output_names(self) -> list[str]:
        return self._op.output_names

    def input_arg_names(self) -> list[str]:
        return self._op.input_arg_names

    def output_arg_names(self) -> list[str]:
        return self._op.output_arg_names

    def attr(self, name: str) -> Any:
        return self._op.attr(name)

    def has_attr(self, name: str) -> bool:
        return self._op.has_attr(name)

    def attr_names(self) -> list[str]:
        return self._op.attr_names

    def _set_attr(self, name: str, value: Any) -> None:
        self._op.set_attr(name, value)

    def _rename_input(self, old: str, new: str) -> None:
        self._op.rename_input(old, new)

    def _rename_output(self, old: str, new: str) -> None:
        self._op.rename_output(old, new)

    def check_attrs(self) -> None:
        """Does nothing: attributes are checked during shape inference."""

    def infer_var_type(self, block: BlockView) -> None:
        """Does nothing: types are inferred together with shapes."""

    def infer_shape(self, block: BlockView) -> None:
        self._op.infer()


class VarView:
    """``var.desc``"""

    def __init__(self, variable: Variable):
        self._variable = variable

    def name(self) -> str:
        return self._variable.name

    def shape(self) -> list[int]:
        return list(self._variable.shape)

    def set_shape(self, shape: list[int]) -> None:
        self._variable.shape = shape

    def dtype(self) -> VarType:
        return self._variable.dtype

    def set_dtype(self, dtype: Any) -> None:
        self._variable.dtype = dtype

    def type(self) -> VarType:
        return self._variable.type

    def set_type(self, type: VarType) -> None:
        self._variable.type = type

    def lod_level(self) -> int:
        return self._variable.lod_level

    def set_lod_level(self, level: int) -> None:
        self._variable.lod_level = level

    def persistable(self) -> bool:
        return self._variable.persistable

    def set_persistable(self, value: bool) -> None:
        self._variable.persistable = value

    def need_check_feed(self) -> bool:
        return self._variable.need_check_feed

    def set_need_check_feed(self, value: bool) -> None:
        self._variable.need_check_feed = value
