"""Subscripts of variables: ``x[0]``, ``x[:, 1:]``, ``x[::-1]``, ``x[..., i]`` with a variable i."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refluid.ir import Block, Variable, VarType, unique_name

_END = 10000000  # Fluid's encoding of "to the end"


@dataclass
class _Bounds:
    """A parsed subscript, axis by axis; starts, ends and strides are integers or variables."""

    axes: list[int] = field(default_factory=list)
    starts: list[Any] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    strides: list[Any] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    reversed: list[int] = field(default_factory=list)

    def add(self, axis: int, start: Any, end: Any, stride: Any = 1) -> None:
        self.axes.append(axis)
        self.starts.append(start)
        self.ends.append(end)
        self.strides.append(stride)


def subscript(self: Variable, item: Any) -> Variable:
    """Slices this variable by integers, slices, an ellipsis, or variables that hold one integer."""
    block = self.block.program.current_block()
    cut = _Bounds()
    for axis, index in enumerate(_expand_ellipsis(item, len(self.shape))):
        _read(cut, axis, index, block)
    found = _sliced(self, cut, block) if cut.axes else self
    if not cut.reversed:
        return found
    axes = [axis - sum(dropped < axis for dropped in cut.dropped) for axis in cut.reversed]
    out = block.create_var(name=unique_name.generate(self.name + "_slice_reverse"), dtype=self.dtype)
    block.append_op(type="reverse", inputs={"X": [found]}, outputs={"Out": [out]}, attrs={"axis": axes})
    return out


def _expand_ellipsis(item: Any, rank: int) -> list[Any]:
    """Expands the ellipsis of a subscript."""
    items = list(item) if isinstance(item, tuple | list) else [item]
    dots = [i for i, index in enumerate(items) if index is Ellipsis]
    if len(dots) > 1:
        raise IndexError("a subscript can have only one ellipsis")
    if len(items) - len(dots) > rank:
        raise IndexError(f"too many indices: {len(items) - len(dots)} for a variable with {rank} dims")
    for i in dots:
        items[i : i + 1] = [slice(None)] * (rank - len(items) + 1)
    return items


def _read(cut: _Bounds, axis: int, index: Any, block: Block) -> None:
    if isinstance(index, Variable):
        cut.dropped.append(axis)
        cut.add(axis, index, _plus_one(index, block))
    elif isinstance(index, int | np.integer) and not isinstance(index, bool):
        cut.dropped.append(axis)
        cut.add(axis, int(index), _END if index == -1 else int(index) + 1)
    elif isinstance(index, slice):
        _read_slice(cut, axis, index)
    else:
        raise TypeError(f"a variable's index must be an integer, a slice or a variable, not {type(index).__name__}")


def _read_slice(cut: _Bounds, axis: int, index: slice) -> None:
    start, end, stride = index.start, index.stop, index.step
    backwards = not isinstance(stride, Variable) and stride is not None and stride < 0
    if start is None and end is None and (stride is None or (isinstance(stride, int) and stride in (1, -1))):
        if backwards:
            cut.reversed.append(axis)
        return
    if backwards and stride != -1 and (start is None or end is None):
        raise ValueError(
            f"a step of {stride} requires a start and an end: Fluid's strided_slice counts from the lower one"
        )
    # With a negative stride, strided_slice takes an end of -1 to mean "past the first element".
    start = (-1 if backwards else 0) if start is None else start
    end = (-1 if backwards else _END) if end is None else end
    cut.add(axis, start, end, 1 if stride is None else stride)


def _plus_one(index: Variable, block: Block) -> Variable:
    """Returns index + 1."""
    one = _constant(1, index.dtype, block)
    out = block.create_var(dtype=index.dtype)
    block.append_op(type="elementwise_add", inputs={"X": index, "Y": one}, outputs={"Out": out}, attrs={"axis": -1})
    return out


def _constant(value: int, dtype: VarType, block: Block) -> Variable:
    out = block.create_var(dtype=dtype, stop_gradient=True)
    attrs = {"shape": [1], "dtype": dtype, "value": float(value), "force_cpu": True}
    block.append_op(type="fill_constant", outputs={"Out": [out]}, attrs=attrs)
    return out


def _sliced(x: Variable, cut: _Bounds, block: Block) -> Variable:
    strided = any(isinstance(stride, Variable) or stride != 1 for stride in cut.strides)
    type = "strided_slice" if strided else "slice"
    bounds = {"starts": cut.starts, "ends": cut.ends, **({"strides": cut.strides} if strided else {})}
    inputs: dict[str, list[Variable]] = {"Input": [x]}
    for name, values in bounds.items():
        if any(isinstance(value, Variable) for value in values):
            inputs[name.capitalize() + "TensorList"] = [
                value if isinstance(value, Variable) else _constant(value, VarType.INT32, block) for value in values
            ]
    known = [not any(isinstance(value, Variable) for value in axis) for axis in zip(*bounds.values(), strict=True)]
    out = block.create_var(name=unique_name.generate(f"{x.name}_{type}"), dtype=x.dtype)
    block.append_op(
        type=type,
        inputs=inputs,
        outputs={"Out": [out]},
        attrs={
            "axes": cut.axes,
            "decrease_axis": cut.dropped,
            "infer_flags": [1 if is_known else -1 for is_known in known],
            **{name: [-1 if isinstance(v, Variable) else int(v) for v in values] for name, values in bounds.items()},
        },
    )
    return out
