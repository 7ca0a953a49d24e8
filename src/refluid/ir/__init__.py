"""Programs as data: Program, Block, Operator and Variable, with Fluid's names and behaviour. Contains no arrays."""

from refluid.ir import unique_name
from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.program import (
    Program,
    default_main_program,
    default_startup_program,
    name_scope,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from refluid.ir.roles import OP_NAMESCOPE, OP_ROLE, OP_ROLE_VAR, OpRole
from refluid.ir.variable import Parameter, ReadTensor, Variable, name_of
from refluid.ir.vartype import VarType, as_dtype, as_numpy

__all__ = [
    "OP_NAMESCOPE",
    "OP_ROLE",
    "OP_ROLE_VAR",
    "Block",
    "OpRole",
    "Operator",
    "Parameter",
    "Program",
    "ReadTensor",
    "VarType",
    "Variable",
    "as_dtype",
    "as_numpy",
    "default_main_program",
    "default_startup_program",
    "name_of",
    "name_scope",
    "program_guard",
    "switch_main_program",
    "switch_startup_program",
    "unique_name",
]
