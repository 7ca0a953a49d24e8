"""How devices share out parameters and the state of optimizers, so that a model larger than one device can be trained.

A partition says along which axis of a mesh each dim of a variable is cut, as `jax.sharding.PartitionSpec` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from refluid.ir.operator import Operator
from refluid.ir.program import Program
from refluid.ir.roles import OpRole
from refluid.ir.variable import Variable, name_of
from refluid.ops.core.replicas import AXIS

Partition = tuple[Any, ...]  # for each of the first dims: None, the name of an axis, or several

_ALL = "*"  # stands for all parameters whose rows can be divided
_BY_ROWS: Partition = (AXIS,)


def shard_parameters(
    program: Program, parameters: Iterable[Variable | str] | Mapping[Any, Iterable[Any]] | None = None
) -> None:
    """Has the devices of a data-parallel program share out parameters, and the state of their optimizers.

    Given names only, each device holds and updates some rows of these parameters. Operators get all rows: they are
    gathered where they are needed, and freed afterwards.

    >>> refluid.shard_parameters(program, ["fc_0.w_0"])
    >>> exe.run(fluid.CompiledProgram(program).with_data_parallel(loss.name), feed=feed)

    Given partitions, parameters are cut along axes of a mesh of yours. Along these axes devices share the work of a
    replica, as XLA divides it, so no device ever holds a whole parameter; along the other axes of the mesh are the
    replicas.

    >>> mesh = jax.make_mesh((2, 4), ("data", "model"))
    >>> refluid.shard_parameters(program, {"fc_0.w_0": (None, "model")})
    >>> exe.run(fluid.CompiledProgram(program).with_data_parallel(loss.name, places=mesh), feed=feed)

    Files and `scope.find_var` see whole parameters, so checkpoints load onto any number of devices. The startup program
    runs at its own place: let that be a CPU if a parameter is larger than one device. Programs that run on one device
    are not affected.

    Args:
      program: the program, before it is given to CompiledProgram.
      parameters: variables or names, or a dict of these and `jax.sharding.PartitionSpec`s; by default all parameters.
        Dims must be divisible by the number of devices; by default those are chosen whose rows are.
    """
    block = program.global_block()
    if parameters is None:
        program.partitions = {_ALL: _BY_ROWS}
    else:
        given = parameters if isinstance(parameters, Mapping) else dict.fromkeys(parameters, _BY_ROWS)
        partitions = {name_of(parameter): tuple(partition) for parameter, partition in given.items()}
        for name, partition in sorted(partitions.items()):
            variable = block.vars.get(name)
            if variable is None or not variable.persistable:
                raise ValueError(f"shard_parameters: the program has no parameter {name}")
            if len(partition) > len(variable.shape):
                shape = list(variable.shape)
                raise ValueError(
                    f"shard_parameters: {name} has shape {shape}, but a partition of {len(partition)} dims"
                )
        program.partitions = partitions
    program.changed()


def axes_of_partitions(program: Program) -> tuple[str, ...]:
    """The axes of the user's mesh along which parameters are cut, sorted."""
    return tuple(sorted({axis for partition in program.partitions.values() for axis in _axes(partition)} - {AXIS}))


def partitions(program: Program, sizes: Mapping[str, int], *, reduces: bool = False) -> dict[str, Partition]:
    """How the state of a program is cut on a mesh whose axes have these sizes.

    Args:
      reduces: whether replicas share out the state of all optimizers.

    Raises:
      ValueError: a parameter cannot be cut as the user wants it.
    """
    found = {name: partition for name, partition in program.partitions.items() if name != _ALL}
    if _ALL in program.partitions:
        parameters = [p for p in program.all_parameters() if _problem(p, _BY_ROWS, sizes) is None]
        found = {p.name: _BY_ROWS for p in parameters} | found
    for name, partition in sorted(found.items()):
        variable = program.global_block().var(name)
        problem = _problem(variable, partition, sizes)
        if problem is not None:
            raise ValueError(f"shard_parameters: {name} has shape {list(variable.shape)}; {problem}")
    return found | dict(_optimizer_state(program, found, sizes, reduces))


def _optimizer_state(
    program: Program, cut: Mapping[str, Partition], sizes: Mapping[str, int], reduces: bool
) -> Iterator[tuple[str, Partition]]:
    """The partitions of optimizer state that has the shape of its parameter: those of the parameter."""
    block = program.global_block()
    readers: dict[str, list[Operator]] = {}
    for op in (op for each in program.blocks for op in each.ops):
        for name in op.input_arg_names:
            readers.setdefault(name, []).append(op)
    for op in (op for op in block.ops if op.role & OpRole.Optimize and len(op.input("Param")) == 1):
        param, grad = block.var(op.input("Param")[0]), block.var(op.input("Grad")[0])
        partition = cut.get(param.name, _BY_ROWS if reduces and _problem(param, _BY_ROWS, sizes) is None else None)
        by_rows = op.definition.slices == "rows" and grad.type == param.type  # each replica can update its own rows
        if partition is None or (partition == _BY_ROWS and not by_rows):
            continue
        for name in {*op.input_arg_names} - {param.name, grad.name}:
            if block.var(name).shape == param.shape and readers[name] == [op]:
                yield name, partition


def _axes(partition: Partition) -> list[str]:
    axes: list[str] = []
    for cut in partition:
        axes += [] if cut is None else [cut] if isinstance(cut, str) else cut
    return axes


def _problem(variable: Variable, partition: Partition, sizes: Mapping[str, int]) -> str | None:
    """Why a variable cannot be cut like that; None if it can be."""
    missing = [axis for axis in _axes(partition) if axis not in sizes]
    if missing:
        return f"it is cut along the axis {missing[0]!r}, which the mesh does not have; give one as places"
    for size, cut in zip(variable.shape, partition, strict=False):
        count = 1
        for axis in _axes((cut,)):
            count *= sizes[axis]
        if size % count or (AXIS in _axes((cut,)) and size <= count):
            what = "rows" if partition == _BY_ROWS else "dims"
            return f"its {what} cannot be divided evenly among {count} devices" + _AT_LEAST * (what == "rows")
    return None


# A row for each device would look like a number that is the same for all.
_AT_LEAST = ", at least two for each"
