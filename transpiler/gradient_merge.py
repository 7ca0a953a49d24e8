"""Gradient merge: the gradients of several batches add up, then one update follows, as if of a larger batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refluid.ir import Block, Operator, OpRole, Program
from refluid.transpiler.inserting import insert
from refluid.transpiler.intervals import every

MERGED = "@MERGED"  # the suffix of the sum of a gradient over steps
_COUNTER = "@GRADIENT_MERGE_STEP@"


@dataclass(frozen=True)
class MergeGradients:
    """Updates parameters in every ``steps``-th step, with the mean or the sum of the gradients since the last update.

    Clipping and regularization see the merged gradients. Learning rate schedules count every step. A sparse gradient
    becomes a dense one. Replicas sum the merged gradients, once for each update.

    Attributes:
      steps: the number of batches for one update.
      averages: whether gradients are averaged, rather than added up.
    """

    steps: int
    averages: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"k_steps must be a positive integer, not {self.steps!r}")

    def apply(self, main: Program, startup: Program) -> None:
        """Makes the updates of ``main`` conditional; ``startup`` creates the sums."""
        block = main.global_block()
        params = parameters_by_gradient(block)
        merged = {gradient: param + "@GRAD" + MERGED for gradient, param in params.items()}
        updating = [op for op in block.ops if op.role & OpRole.Optimize and not op.role & OpRole.LRSched]
        if not merged or not updating:
            raise ValueError("the program updates no parameter; call minimize before merging gradients")
        if self.steps == 1:
            return
        self._add_up(main, startup, merged, block.ops.index(updating[0]))
        with every(self.steps, main, startup, _COUNTER) as inside:
            for total in merged.values() if self.averages else ():
                insert(inside, len(inside.ops), "scale", total, total, OpRole.Optimize, scale=1.0 / self.steps)
            for op in updating:
                _move(op, inside, merged)
            for total in merged.values():
                insert(inside, len(inside.ops), "fill_zeros_like", total, total, OpRole.Optimize)
            _move_variables(block, inside, updating)

    def _add_up(self, main: Program, startup: Program, merged: dict[str, str], place: int) -> None:
        block, begin = main.global_block(), startup.global_block()
        params = parameters_by_gradient(block)
        for i, (gradient, total) in enumerate(merged.items()):
            parameter = block.var(params[gradient])
            shape = {"shape": list(parameter.shape), "dtype": parameter.dtype}
            for home in (block, begin):
                home.create_var(name=total, persistable=True, **shape)
            begin.append_op(type="fill_constant", outputs={"Out": total}, attrs={**shape, "value": 0.0})
            block.insert_op(
                place + i,
                type="sum",
                inputs={"X": [total, gradient]},
                outputs={"Out": total},
                attrs={"op_role": int(OpRole.Backward)},
            )


def parameters_by_gradient(block: Block) -> dict[str, str]:
    """The parameters whose gradients backward operators complete."""
    pairs = [op.role_var for op in block.ops if op.role & OpRole.Backward]
    return {gradient: param for pair in pairs for param, gradient in zip(pair[::2], pair[1::2], strict=True)}


def merged_gradients(block: Block) -> dict[str, tuple[str, Block]]:
    """The gradients that are merged over steps: the variable of each sum, and the block that uses it."""
    users = [(op.input("Input"), op.attrs["sub_block"]) for op in block.ops if op.type == "conditional_block"]
    found = {}
    for op in block.ops:
        if op.type == "sum" and op.output("Out")[0].endswith(MERGED):
            total, gradient = op.input("X")
            found[gradient] = total, next(inside for names, inside in users if total in names)
    return found


def _move(op: Operator, block: Block, renamed: dict[str, str]) -> None:
    """Moves an operator into another block."""
    op.block.ops.remove(op)
    moved = op.copy_to(block)
    for old, new in renamed.items():
        moved.rename_input(old, new)
        moved.rename_output(old, new)
    block.ops.append(moved)


def _move_variables(outside: Block, inside: Block, moved: Sequence[Operator]) -> None:
    """Declares inside what only moved operators use."""
    used = {name for op in outside.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    for name in dict.fromkeys(name for op in moved for name in op.output_arg_names):
        variable = outside.vars.get(name)
        if variable is not None and not variable.persistable and name not in used:
            variable.copy_to(inside)
            del outside.vars[name]
