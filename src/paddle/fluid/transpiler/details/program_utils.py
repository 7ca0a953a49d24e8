"""Programs as text, and operators found by what they read and write."""

import sys

from refluid.ir.text import operator_text, variable_text

__all__ = ["block_to_code", "delete_ops", "find_op_by_input_arg", "find_op_by_output_arg", "op_to_code"]
__all__ += ["program_to_code", "variable_to_code"]


def program_to_code(prog, fout=None, skip_op_callstack=True):
    """Prints a program, or writes it to the file ``fout``."""
    for number, block in enumerate(prog.blocks):
        block_to_code(block, number, fout, skip_op_callstack)


def block_to_code(block, block_idx, fout=None, skip_op_callstack=False):
    """Prints one block of a program, or writes it to the file ``fout``."""
    print(block.to_string(), file=sys.stdout if fout is None else fout)


def op_to_code(op, skip_op_callstack=True):
    """Returns an operator as a line of text."""
    return operator_text(op)


def variable_to_code(var):
    """Returns a variable as a line of text."""
    return variable_text(var)


def delete_ops(block, ops):
    """Removes operators from a block."""
    gone = {id(op) for op in ops}
    block.ops = [op for op in block.ops if id(op) not in gone]
    block.program.changed()


def find_op_by_input_arg(block, arg_name):
    """Returns the position of the first operator that reads a variable, or -1."""
    return next((i for i, op in enumerate(block.ops) if arg_name in op.input_arg_names), -1)


def find_op_by_output_arg(block, arg_name, reverse=False):
    """Returns the position of the first operator that writes a variable, or of the last if ``reverse``, or -1."""
    found = [i for i, op in enumerate(block.ops) if arg_name in op.output_arg_names]
    return -1 if not found else found[-1 if reverse else 0]
