"""Operators that run in every k-th step only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from refluid.ir import Block, OpRole, Program, VarType, unique_name
from refluid.ir.sub_blocks import crossing_names


@contextmanager
def every(steps: int, main: Program, startup: Program, counter: str) -> Iterator[Block]:
    """Opens a block at the end of ``main`` that runs in every ``steps``-th step.

    Args:
      counter: the name of the persistable variable that counts steps.
    """
    outside = main.global_block()
    with main._role_guard(OpRole.Optimize), startup._role_guard(OpRole.Forward):
        is_due = _append_test(outside, startup.global_block(), steps, counter)
        main.current_block_idx = 0
        block = main._create_block()
        try:
            yield block
        finally:
            main._rollback()
        read, implied, written = crossing_names(block)
        scopes = outside.create_var(type=VarType.STEP_SCOPES, name=unique_name.generate("step_scopes"))
        op = outside.append_op(
            type="conditional_block",
            inputs={"Cond": [is_due], "Input": read},
            outputs={"Out": written, "Scope": [scopes]},
            attrs={"sub_block": block, "is_scalar_condition": True},
        )
        op.implied = {"Input": implied}


def _append_test(block: Block, startup: Block, steps: int, counter: str) -> str:
    """Appends operators that count steps; returns the variable that says whether this is a ``steps``-th one."""
    number = {"shape": [1], "dtype": VarType.INT64}
    for home in (block, startup):
        home.create_var(name=counter, persistable=True, **number)
    startup.append_op(type="fill_constant", outputs={"Out": counter}, attrs={**number, "value": 0.0})
    block.append_op(type="increment", inputs={"X": counter}, outputs={"Out": counter}, attrs={"step": 1.0})
    names = {part: unique_name.generate(f"{counter}.{part}") for part in ("interval", "rest", "zero", "is_due")}
    for part, name in names.items():
        block.create_var(name=name, shape=[1], dtype=VarType.BOOL if part == "is_due" else VarType.INT64)
    for part, value in (("interval", steps), ("zero", 0)):
        block.append_op(type="fill_constant", outputs={"Out": names[part]}, attrs={**number, "value": float(value)})
    _append(block, "elementwise_mod", counter, names["interval"], names["rest"])
    _append(block, "equal", names["rest"], names["zero"], names["is_due"])
    return names["is_due"]


def _append(block: Block, type: str, x: str, y: str, out: str) -> None:
    block.append_op(type=type, inputs={"X": x, "Y": y}, outputs={"Out": out})
