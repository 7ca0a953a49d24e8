"""Looking at programs: as pseudo-code, as graphs."""

from refluid.ir.drawing import Graph
from refluid.ir.text import operator_text, variable_text

__all__ = ["draw_block_graphviz", "pprint_block_codes", "pprint_program_codes"]


def pprint_program_codes(program_desc):
    """All blocks of a program as pseudo-code, gradients left out."""
    return "\n".join(pprint_block_codes(block) for block in program_desc.blocks)


def pprint_block_codes(block_desc, show_backward=False):
    """A block as pseudo-code.

    Args:
      show_backward: also show gradient variables and the operators that write them.
    """
    variables = [v for v in block_desc.vars.values() if show_backward or not _is_gradient(v.name)]
    ops = [op for op in block_desc.ops if show_backward or not _is_backward(op)]
    lines = [f"// block-{block_desc.idx}  parent-{block_desc.parent_idx}", "// variables"]
    lines += [variable_text(variable) for variable in variables]
    lines += ["", "// operators", *(operator_text(op) for op in ops), ""]
    return "\n".join(lines)


def draw_block_graphviz(block, highlights=None, path="./temp.dot"):
    """Writes a block as a Graphviz file, and as a PDF beside it where Graphviz is installed.

    Args:
      highlights: regular expressions; operators that use or write variables with such names stand out.
    """
    graph = Graph(f"block {block.idx}", rankdir="TB")
    graph.add(block, highlights=highlights or ())
    graph.save(path)


def _is_gradient(name):
    return "@GRAD" in name


def _is_backward(op):
    # An optimizer reads gradients, so hiding the backward pass hides it as well.
    return any(map(_is_gradient, (*op.input_arg_names, *op.output_arg_names)))
