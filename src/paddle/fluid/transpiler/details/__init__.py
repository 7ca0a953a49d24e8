"""Parts of transpilers that scripts use: programs as text, operators found by what they read, slices, ports."""

from paddle.fluid.transpiler.details import checkport, program_utils, ufind, vars_distributed
from paddle.fluid.transpiler.details.checkport import wait_server_ready
from paddle.fluid.transpiler.details.program_utils import (
    block_to_code,
    delete_ops,
    find_op_by_input_arg,
    find_op_by_output_arg,
    op_to_code,
    program_to_code,
    variable_to_code,
)
from paddle.fluid.transpiler.details.ufind import UnionFind
from paddle.fluid.transpiler.details.vars_distributed import VarDistributed, VarsDistributed, VarStruct

__all__ = ["block_to_code", "checkport", "program_utils", "ufind", "vars_distributed", "wait_server_ready"]
__all__ += ["delete_ops", "find_op_by_input_arg", "find_op_by_output_arg", "op_to_code", "program_to_code"]
__all__ += ["UnionFind", "VarDistributed", "VarStruct", "VarsDistributed", "variable_to_code"]
