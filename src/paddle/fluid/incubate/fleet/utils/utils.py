"""Program files for inspection: text and binary form, listings, drawings and comparisons."""

from __future__ import annotations

import logging
import os

from google.protobuf import text_format

from paddle._missing import missing_names
from paddle.fluid.debugger import draw_block_graphviz
from refluid.files.programs import read_program
from refluid.files.storage import at
from refluid.files.writing import atomic_write, write_together, writer_of
from refluid.ir import Block, Program
from refluid.ir.framework_pb2 import ProgramDesc  # pyright: ignore[reportAttributeAccessIssue]

__all__ = [
    "check_pruned_program_vars",
    "graphviz",
    "load_program",
    "parse_program",
    "program_type_trans",
    "save_program",
]

__getattr__ = missing_names(__name__)

logger = logging.getLogger(__name__)


def load_program(model_filename: str, is_text: bool = False) -> Program:
    """Reads a program from a ProgramDesc message, in binary or text form."""
    if not is_text:
        return read_program(at(model_filename))
    described = text_format.Parse(at(model_filename).read_bytes(), ProgramDesc())
    return Program.parse_from_string(described.SerializeToString())


def save_program(program: Program, model_filename: str = "__model__", is_text: bool = False) -> None:
    """Writes a program as a ProgramDesc message, in binary or text form."""
    content = program.desc.serialize_to_string()
    if is_text:
        content = text_format.MessageToString(ProgramDesc.FromString(content)).encode()
    with atomic_write(model_filename) as stream:
        stream.write(content)


def program_type_trans(prog_dir: str, prog_fn: str, is_text: bool) -> str:
    """Converts a program file between text and binary form; returns the name of the new file."""
    program = load_program(os.path.join(prog_dir, prog_fn), is_text)
    other = prog_fn + (".bin" if is_text else ".pbtxt")
    save_program(program, os.path.join(prog_dir, other), not is_text)
    return other


def parse_program(program: Program, output_dir: str) -> None:
    """Lists variables, persistable variables and operators in three files: vars_all, vars_persistable, ops .log."""
    block = program.global_block()
    lines: dict[str, list[str]] = {"vars_all": [], "vars_persistable": [], "ops": []}
    for var in block.vars.values():
        line = f"{var.name}  shape {tuple(var.shape)}  dtype {var.dtype.name}  lod_level {var.lod_level}"
        lines["vars_all"].append(line)
        if var.persistable:
            lines["vars_persistable"].append(line)
    for op in block.ops:
        lines["ops"].append(f"{op.type}  inputs {op.input_arg_names}  outputs {op.output_arg_names}")
    texts = {f"{name}.log": "".join(f"{line}\n" for line in found) for name, found in lines.items()}
    write_together(output_dir, {name: writer_of(text.encode()) for name, text in texts.items()})


def check_pruned_program_vars(train_prog: Program, pruned_prog: Program) -> bool:
    """Returns whether every persistable variable of a pruned program is in the training program with the same shape."""
    known = train_prog.global_block().vars
    fits = True
    for var in pruned_prog.global_block().vars.values():
        if not var.persistable or var.name in ("feed", "fetch"):
            continue
        trained = known.get(var.name)
        if trained is None:
            logger.error("variable %s of the pruned program is not in the training program", var.name)
        elif tuple(trained.shape) != tuple(var.shape):
            logger.error("variable %s: %s in training, %s pruned", var.name, trained.shape, var.shape)
        fits &= trained is not None and tuple(trained.shape) == tuple(var.shape)
    return fits


def graphviz(block: Block, output_dir: str = "", filename: str = "debug") -> None:
    """Draws a block with Graphviz, to ``filename``.dot."""
    draw_block_graphviz(block, path=os.path.join(output_dir, f"{filename}.dot"))
