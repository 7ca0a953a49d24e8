"""Parameters of which each device holds some rows, so that a model larger than one device can be trained."""

from __future__ import annotations

from collections.abc import Iterable

from refluid.ir.program import Program
from refluid.ir.variable import Variable, name_of


def shard_parameters(program: Program, parameters: Iterable[Variable | str] | None = None) -> None:
    """Has the devices of a data-parallel program share out the rows of parameters, and of their optimizers' state.

    Each device holds and updates its own rows. Operators that read a parameter get all rows: they are gathered where
    they are needed, and freed afterwards. Files and `scope.find_var` see whole parameters, so checkpoints load onto any
    number of devices. Programs that run on one device are not affected.

    >>> refluid.shard_parameters(program, ["embedding_0.w_0"])
    >>> exe.run(fluid.CompiledProgram(program).with_data_parallel(loss.name), feed=feed)

    Args:
      program: the program, before it is given to CompiledProgram.
      parameters: variables or names; by default all parameters. The number of their rows must be a multiple of the
        number of devices; by default those are chosen for which it is.
    """
    block = program.global_block()
    if parameters is None:
        program.shared_out = frozenset({"*"})
    else:
        names = frozenset(map(name_of, parameters))
        for name in sorted(names):
            variable = block.vars.get(name)
            if variable is None or not variable.persistable:
                raise ValueError(f"shard_parameters: the program has no parameter {name}")
        program.shared_out = names
    program.changed()


def shared_out(program: Program, devices: int) -> frozenset[str]:
    """The parameters that a program shares out among that many devices."""
    block = program.global_block()
    if "*" in program.shared_out:
        return frozenset(p.name for p in program.all_parameters() if _is_divisible(p, devices))
    for name in sorted(program.shared_out):
        if not _is_divisible(block.var(name), devices):
            raise ValueError(
                f"shard_parameters: {name} has shape {list(block.var(name).shape)}; its rows cannot be divided evenly "
                f"among {devices} devices, at least two for each"
            )
    return program.shared_out


def _is_divisible(variable: Variable, devices: int) -> bool:
    rows = variable.shape[0] if variable.shape else 0
    return rows > devices and rows % devices == 0
