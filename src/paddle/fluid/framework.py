"""Programs and variables, under Fluid's module path."""

from __future__ import annotations

import re

from paddle import version
from paddle._missing import missing_names
from paddle.fluid.flags import get_flags, set_flags
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
    "disable_dygraph",
    "get_flags",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "name_scope",
    "program_guard",
    "require_version",
    "set_flags",
    "switch_main_program",
    "switch_startup_program",
]

__getattr__ = missing_names(__name__)

EMPTY_VAR_NAME = "@EMPTY@"
TEMP_VAR_NAME = "@TEMP@"
GRAD_VAR_SUFFIX = "@GRAD"
ZERO_VAR_SUFFIX = "@ZERO"


def in_dygraph_mode() -> bool:
    """Returns False: refluid runs static graphs only."""
    return False


in_dynamic_mode = in_dygraph_mode


def disable_dygraph() -> None:
    """Does nothing: programs are static here."""


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Raises Exception unless the version of Fluid whose names are implemented here is in that range.

    Args:
      min_version, max_version: one to four numbers, such as "1.5.2".
    """
    lowest = _version_numbers("min_version", min_version)
    highest = None if max_version is None else _version_numbers("max_version", max_version)
    here = _version_numbers("__version__", version.full_version)
    if here < lowest or (highest is not None and here > highest):
        wanted = f"{min_version} or later" if max_version is None else f"from {min_version} to {max_version}"
        raise Exception(
            f"VersionError: PaddlePaddle version {wanted} is required, but refluid implements {version.full_version}"
        )


def _version_numbers(argument: str, text: str) -> list[int]:
    if not isinstance(text, str):
        raise TypeError(f"require_version: {argument} must be a string, not {type(text).__name__}")
    if not re.fullmatch(r"\d+(\.\d+){0,3}", text):
        raise ValueError(f"require_version: {argument} must be one to four numbers, such as 1.5.2, not {text!r}")
    numbers = [int(number) for number in text.split(".")]
    return numbers + [0] * (4 - len(numbers))


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
