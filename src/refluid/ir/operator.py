"""Operators: an op type, variable names by slot, attributes, and the user's source line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from refluid.errors import OpError, UnknownOpError
from refluid.ir.roles import OP_NAMESCOPE, OP_ROLE, OP_ROLE_VAR
from refluid.ir.source import SourceLine
from refluid.ir.variable import Variable, name_of
from refluid.ir.vartype import VarType, as_dtype, as_numpy
from refluid.ops.core import registry
from refluid.ops.core.infer import Described, ShapeDtype, infer_outputs

if TYPE_CHECKING:
    from refluid.ir.block import Block
    from refluid.ir.desc import OpView

LARGE = 1024  # an attribute with this many elements stays an array, e.g. a pretrained table


class Operator:
    """One operator of a block."""

    def __init__(
        self,
        block: Block,
        type: str,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        written_at: SourceLine | None = None,
    ):
        self.block = block
        self.type = type
        self.inputs = _names_by_slot(inputs)
        self.outputs = _names_by_slot(outputs)
        self.attrs = {name: _plain(value) for name, value in (attrs or {}).items() if value is not None}
        self.written_at = written_at
        self.originals: dict[str, str] = {}  # on recomputed copies: variable -> its original
        self.implied: dict[str, list[str]] = {}  # inputs by slot that Fluid's form of the op omits

    @property
    def program(self):
        return self.block.program

    @property
    def definition(self) -> registry.OpDef:
        """The definition of the op."""
        try:
            return registry.lookup(self.type)
        except UnknownOpError as error:
            raise UnknownOpError(self.type, error.nearest, str(self.written_at)) from None

    @property
    def desc(self) -> OpView:
        from refluid.ir.desc import OpView

        return OpView(self)

    @property
    def idx(self) -> int:
        return next(i for i, op in enumerate(self.block.ops) if op is self)

    # Names

    def input(self, name: str) -> list[str]:
        """Returns the variable names in an input slot."""
        return list(self.inputs.get(name, ()))

    def output(self, name: str) -> list[str]:
        """Returns the variable names in an output slot."""
        return list(self.outputs.get(name, ()))

    @property
    def input_names(self) -> list[str]:
        return list(self.inputs)

    @property
    def output_names(self) -> list[str]:
        return list(self.outputs)

    @property
    def input_arg_names(self) -> list[str]:
        return [name for names in self.inputs.values() for name in names]

    @property
    def output_arg_names(self) -> list[str]:
        return [name for names in self.outputs.values() for name in names]

    def rename_input(self, old_name: str, new_name: str) -> None:
        """Replaces ``old_name`` by ``new_name`` in the inputs."""
        self.inputs = _renamed(self.inputs, old_name, new_name)
        self.program.changed()

    def rename_output(self, old_name: str, new_name: str) -> None:
        """Replaces ``old_name`` by ``new_name`` in the outputs."""
        self.outputs = _renamed(self.outputs, old_name, new_name)
        self.program.changed()

    _rename_input, _rename_output = rename_input, rename_output

    # Attributes

    def attr(self, name: str) -> Any:
        """Returns the value of an attribute, or its default if it is not set."""
        if name in self.attrs:
            return self.attrs[name]
        defaults = self._defaults()
        if name in defaults:
            return _plain(defaults[name])
        raise ValueError(f"{self.type} has no attribute {name}")

    def has_attr(self, name: str) -> bool:
        return name in self.attr_names

    @property
    def attr_names(self) -> list[str]:
        return sorted({*self.attrs, *self._defaults()})

    def _defaults(self) -> dict[str, Any]:
        """What attributes are where they are not set; every op of Fluid has roles and a name scope."""
        own = registry.lookup(self.type).attrs if registry.is_known(self.type) else {}
        return {OP_ROLE: 0, OP_ROLE_VAR: [], OP_NAMESCOPE: "/", **own}

    def all_attrs(self) -> dict[str, Any]:
        """Returns all attributes with their values, including defaults."""
        return {name: self.attr(name) for name in self.attr_names}

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute."""
        self.attrs[name] = _plain(value)
        self.program.changed()

    _set_attr = set_attr

    def _update_desc_attr(self, name: str, value: Any) -> None:
        self.set_attr(name, value)

    def _remove_attr(self, name: str) -> None:
        self.attrs.pop(name, None)
        self.program.changed()

    @property
    def role(self) -> int:
        return int(self.attrs.get(OP_ROLE, 0))

    @property
    def role_var(self) -> list[str]:
        return list(self.attrs.get(OP_ROLE_VAR, ()))

    def sub_blocks(self) -> list[Block]:
        """Returns the blocks this operator runs (loop bodies, branches)."""
        from refluid.ir.block import Block

        values = [v for value in self.attrs.values() for v in (value if isinstance(value, list) else [value])]
        return [value for value in values if isinstance(value, Block)]

    def within(self) -> Iterator[Operator]:
        """Yields this operator and all operators in the blocks it runs."""
        yield self
        for block in self.sub_blocks():
            for op in block.ops:
                yield from op.within()

    # Shapes

    def infer(self) -> None:
        """Infers shape, dtype, type and LoD level of the outputs and sets them on their variables."""
        if self.type in registry.BOUNDARY:
            return
        definition = self.definition
        if definition.forward is not None or self.type.endswith("_grad"):
            self._infer_gradient(definition)
            return
        found = self._infer_outputs(definition)
        if found is None:
            return
        model = self._sequence_model(definition)
        for slot, names in self.outputs.items():
            for name, described in zip(names, found.get(slot, ()), strict=False):
                variable = self.block.find_var_recursive(name)
                if variable is not None:
                    variable._shape = described.shape
                    variable._dtype = as_dtype(described.dtype)
                    if described.rows:
                        variable._type = VarType.SELECTED_ROWS
                    shares = model is not None and described.shape[:1] == model.shape[:1]
                    level = described.lod_level or (model.lod_level if model is not None and shares else 0)
                    variable._lod_level = max(variable._lod_level, level)

    def _infer_outputs(self, definition: registry.OpDef) -> Described | None:
        try:
            missing = [s.name for s in definition.inputs if not s.optional and not self.inputs.get(s.name)]
            if missing:
                raise ValueError(f"input slot {', '.join(missing)} is not connected")
            return infer_outputs(definition, self.described_inputs(), self.attrs)
        except Exception as error:
            raise self.error(str(error).strip().split("\n")[0]) from error

    def described_inputs(self) -> Described:
        """Returns shape and dtype of every input variable that has them, by slot."""
        described: Described = {}
        for slot, names in self.inputs.items():
            variables = [self.block.find_var_recursive(name) for name in names]
            if variables and all(v is not None for v in variables):
                described[slot] = [_shape_dtype(v) for v in variables]  # pyright: ignore
        return described

    def _infer_gradient(self, definition: registry.OpDef) -> None:
        """Gives each gradient the shape and dtype of its variable."""
        sparse = definition.sparse_outputs(self.attrs) if definition.sparse_outputs else ()
        for slot, names in self.outputs.items():
            forward = self.inputs.get(slot.removesuffix("@GRAD"), ())
            for name, original in zip(names, forward, strict=False):
                variable, source = self.block.find_var_recursive(name), self.block.find_var_recursive(original)
                if variable is not None and source is not None:
                    variable._shape, variable._dtype = source.shape, source.dtype
                    variable._lod_level = source.lod_level
                    if slot in sparse:
                        variable._type = VarType.SELECTED_ROWS

    def _sequence_model(self, definition: registry.OpDef) -> Variable | None:
        """Returns the first input with sequences, whose LoD is shared by outputs with as many rows.

        Fluid considers the first input only; inputs with other rows, such as a scale, are skipped here.
        """
        if definition.lod != "share":
            return None
        names = (name for slot in definition.inputs for name in self.inputs.get(slot.name, ()))
        variables = [v for v in map(self.block.find_var_recursive, names) if v is not None]
        model = next((v for v in variables if v.lod_level), None)
        if model is None or variables[0] is model or variables[0].shape[:1] != model.shape[:1]:
            return model
        return None

    # Errors

    def error(self, problem: str, hint: str | None = None, described: Mapping[str, str] | None = None) -> OpError:
        """Returns an error that describes this operator, its variables and the user's line.

        ``described`` overrides the description of variables by name, e.g. with their actual shapes at run time.
        """
        lines = [
            f"{slot:<11} {name}  {(described or {}).get(name) or self._describe(name)}"
            for slot, names in self.inputs.items()
            for name in names
        ]
        hidden = (OP_ROLE, OP_ROLE_VAR, OP_NAMESCOPE)
        blocks = self.sub_blocks()
        attrs = [f"{n:<11} {v}" for n, v in self.attrs.items() if n not in hidden and v not in blocks and _is_short(v)]
        return OpError(self.type, problem, lines, attrs, str(self.written_at) if self.written_at else None, hint)

    def _describe(self, name: str) -> str:
        variable = self.block.find_var_recursive(name)
        if variable is None:
            return "(not in the program)"
        return f"{as_numpy(variable.dtype) if variable.dtype <= 22 else variable.dtype}{list(variable.shape)}"

    def to_string(self, throw_on_error: bool = False) -> str:
        """Returns readable text, or with ``throw_on_error`` the text of the protobuf message, as Fluid does."""
        from refluid.ir.text import message_text, operator_text

        return message_text(self) if throw_on_error else operator_text(self)

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__

    def copy_to(self, block: Block) -> Operator:
        """Copies this operator to another block; sub-blocks still refer to the old program."""
        copy = object.__new__(Operator)
        copy.block, copy.type, copy.written_at = block, self.type, self.written_at
        copy.inputs = {slot: list(names) for slot, names in self.inputs.items()}
        copy.outputs = {slot: list(names) for slot, names in self.outputs.items()}
        copy.attrs = dict(self.attrs)
        copy.originals, copy.implied = self.originals, self.implied
        return copy


def _names_by_slot(arguments: Mapping[str, Any] | None) -> dict[str, list[str]]:
    by_slot = {}
    for slot, value in (arguments or {}).items():
        if value is None:
            continue
        values: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
        names = [_checked_name(slot, item) for item in values]
        if names:
            by_slot[slot] = names
    return by_slot


def _checked_name(slot: str, value: Any) -> str:
    if not isinstance(value, str | bytes | Variable):
        raise TypeError(f"slot {slot} expects variables or names, not {type(value).__name__}: {value!r}")
    return name_of(value)


def _renamed(by_slot: dict[str, list[str]], old: str, new: str) -> dict[str, list[str]]:
    return {slot: [new if name == old else name for name in names] for slot, names in by_slot.items()}


def _plain(value: Any) -> Any:
    """Converts an attribute to plain Python values that can be compared, printed and saved; keeps large arrays."""
    if isinstance(value, np.ndarray):
        return value if value.size > LARGE else value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _is_short(value: Any) -> bool:
    return not isinstance(value, list | np.ndarray) or len(value) <= 16


def _shape_dtype(variable: Variable) -> ShapeDtype:
    rows = variable.type == VarType.SELECTED_ROWS
    return ShapeDtype(variable.shape, as_numpy(variable.dtype), rows, variable.lod_level)
