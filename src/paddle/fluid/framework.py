"""Programs and variables, under Fluid's module path."""

from __future__ import annotations

from refluid.ir import (
    Block,
    Operator,
    OpRole,
    Parameter,
    Program,
    Variable,
    VarType,
    as_dtype,
    default_main_program,
    default_startup_program,
    name_scope,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from refluid.ir.graph import IrGraph, IrNode, IrOpNode, IrVarNode
from refluid.places import cpu_places, cuda_pinned_places, cuda_places, is_compiled_with_cuda

__all__ = [
    "Block",
    "IrGraph",
    "IrNode",
    "IrOpNode",
    "IrVarNode",
    "OpRole",
    "Operator",
    "Parameter",
    "Program",
    "Variable",
    "cpu_places",
    "cuda_pinned_places",
    "cuda_places",
    "default_main_program",
    "default_startup_program",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "name_scope",
    "program_guard",
    "switch_main_program",
    "switch_startup_program",
]

EMPTY_VAR_NAME = "@EMPTY@"
TEMP_VAR_NAME = "@TEMP@"
GRAD_VAR_SUFFIX = "@GRAD"
ZERO_VAR_SUFFIX = "@ZERO"


def in_dygraph_mode() -> bool:
    """Returns False: refluid runs static graphs only."""
    return False


in_dynamic_mode = in_dygraph_mode


def grad_var_name(var_name: str) -> str:
    """Returns the name of a variable's gradient."""
    return var_name + GRAD_VAR_SUFFIX


def convert_np_dtype_to_dtype_(np_dtype) -> VarType:
    """Converts a NumPy dtype or dtype name to Fluid's dtype."""
    return as_dtype(np_dtype)


def dtype_is_floating(dtype) -> bool:
    """Returns whether a dtype is floating-point."""
    return as_dtype(dtype) in (VarType.FP16, VarType.FP32, VarType.FP64, VarType.BF16)


def get_var(name: str, program: Program | None = None) -> Variable:
    """Returns the variable with that name in block 0 of ``program``."""
    program = program or default_main_program()
    return program.global_block().var(name)
