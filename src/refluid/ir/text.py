"""Programs as readable text: one line per variable and per operator."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import numpy as np

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.program import Program
from refluid.ir.roles import OP_NAMESCOPE, OP_ROLE, OP_ROLE_VAR
from refluid.ir.variable import Parameter, Variable
from refluid.ir.vartype import VarType

_HIDDEN = (OP_ROLE, OP_ROLE_VAR, OP_NAMESCOPE)
_OF_PARAMETERS = ("trainable", "optimize_attr", "regularizer", "do_model_average")


def message_text(described: Program | Block | Operator | Variable, with_details: bool = False) -> str:
    """The protobuf message of a program or a part of one, in protobuf's text format.

    ``with_details`` adds, as Fluid does, what messages have no fields for.
    """
    from google.protobuf import text_format

    from refluid.ir.protobuf import to_message

    if not with_details or isinstance(described, Operator):
        return text_format.MessageToString(to_message(described))
    if isinstance(described, Variable):
        names = ("error_clip", "stop_gradient", *(_OF_PARAMETERS if isinstance(described, Parameter) else ()))
        return message_text(described) + "".join(f"{name}: {getattr(described, name)}\n" for name in names)
    if isinstance(described, Block):
        parts = [("vars", variable) for variable in described.vars.values()] + [("ops", op) for op in described.ops]
        head = f"idx: {described.idx}\nparent_idx: {described.parent_idx}\n"
    else:
        parts, head = [("blocks", block) for block in described.blocks], ""
    return head + "".join(f"{field} {{\n{indent(message_text(part, True), '  ')}}}\n" for field, part in parts)


def program_text(program: Program, with_details: bool = False) -> str:
    """Formats all blocks, in order."""
    return "\n".join(block_text(block, with_details) for block in program.blocks)


def block_text(block: Block, with_details: bool = False) -> str:
    """Formats a block's variables and operators."""
    head = f"{{ // block {block.idx}" + (f", inside block {block.parent_idx}" if block.parent_idx >= 0 else "")
    lines = [f"    {variable_text(variable, with_details)}" for variable in block.vars.values()]
    lines += [""] if lines and block.ops else []
    lines += [f"    {operator_text(op, with_details)}" for op in block.ops]
    return "\n".join([head, *lines, "}"])


def variable_text(variable: Variable, with_details: bool = False) -> str:
    """``param fc_0.w_0 : LOD_TENSOR.FP32[13, 1] persistable``"""
    kind = "param" if isinstance(variable, Parameter) else "var"
    words = [f"{kind} {variable.name} : {variable.type.name}.{variable.dtype.name}{list(variable.shape)}"]
    if variable.type == VarType.READER:
        tensors = ", ".join(f"{dtype.name}{list(shape)}" for shape, dtype, _ in variable.read_tensors)
        words = [f"{kind} {variable.name} : {variable.type.name}({tensors})"]
    if variable.lod_level:
        words.append(f"lod {variable.lod_level}")
    words += [word for word in ("persistable", "stop_gradient", "is_data") if getattr(variable, word)]
    if with_details and isinstance(variable, Parameter):
        words += [f"trainable={variable.trainable}", f"optimize_attr={variable.optimize_attr}"]
        words += [f"regularizer={variable.regularizer}"] if variable.regularizer else []
    return " ".join(words)


def operator_text(op: Operator, with_details: bool = False) -> str:
    """``{Out=[y]} = mul(inputs={X=[x], Y=[w]}, x_num_col_dims=1)``"""
    attrs = [f", {n}={_value(v)}" for n, v in sorted(op.attrs.items()) if with_details or n not in _HIDDEN]
    return f"{_slots(op.outputs)} = {op.type}(inputs={_slots(op.inputs)}{''.join(attrs)})"


def _slots(by_slot: dict[str, list[str]]) -> str:
    return "{" + ", ".join(f"{slot}=[{', '.join(names)}]" for slot, names in by_slot.items()) + "}"


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.size} values>"
    if isinstance(value, list) and any(isinstance(item, Block) for item in value):
        return f"[{', '.join(map(_value, value))}]"
    return f"block {value.idx}" if isinstance(value, Block) else repr(value)
