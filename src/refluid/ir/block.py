"""Blocks: an ordered list of operators and a table of variables. Inner blocks see the variables of outer ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from refluid.ir.operator import Operator
from refluid.ir.source import user_line
from refluid.ir.variable import Parameter, Variable

if TYPE_CHECKING:
    from refluid.ir.desc import BlockView
    from refluid.ir.program import Program


class Block:
    """One block of a program."""

    def __init__(self, program: Program, idx: int, parent_idx: int = -1):
        self.program = program
        self.idx = idx
        self.parent_idx = parent_idx
        self.forward_block_idx = -1
        self.vars: dict[str, Variable] = {}
        self.ops: list[Operator] = []

    @property
    def desc(self) -> BlockView:
        from refluid.ir.desc import BlockView

        return BlockView(self)

    @property
    def parent(self) -> Block | None:
        return None if self.parent_idx < 0 else self.program.block(self.parent_idx)

    # Variables

    def var(self, name: str) -> Variable:
        """Returns the variable of this block with that name."""
        if not isinstance(name, str):
            raise TypeError(f"a variable is looked up by name, not by {type(name).__name__}")
        found = self.vars.get(name)
        if found is None:
            raise ValueError(f"var {name} not in this block")
        return found

    def has_var(self, name: str) -> bool:
        return name in self.vars

    def find_var_recursive(self, name: str) -> Variable | None:
        """Returns the variable with that name in this block or the nearest enclosing one, or None."""
        block: Block | None = self
        while block is not None:
            found = block.vars.get(name)
            if found is not None:
                return found
            block = block.parent
        return None

    _find_var_recursive = find_var_recursive

    def _has_var_recursive(self, name: str) -> bool:
        return self.find_var_recursive(name) is not None

    has_var_recursive = _has_var_recursive

    def _var_recursive(self, name: str) -> Variable:
        found = self.find_var_recursive(name)
        if found is None:
            raise ValueError(f"var {name} is neither in this block nor in an enclosing one")
        return found

    var_recursive = _var_recursive

    def may_hold(self, name: str, before: Block | None = None) -> bool:
        """Returns whether a variable can have a value: fed, in the scope, or written here or in an enclosing block.

        ``before`` excludes the op that runs that block, and later ops.
        """
        variable = self.find_var_recursive(name)
        if variable is None:
            return False
        writers = itertools.takewhile(lambda op: before is None or before not in op.sub_blocks(), self.ops)
        if variable.persistable or variable.is_data or any(name in op.output_arg_names for op in writers):
            return True
        return self.parent is not None and self.parent.may_hold(name)

    def create_var(self, **options: Any) -> Variable:
        """Creates a variable, or returns the existing one with that name if the descriptions agree."""
        name = options.get("name")
        if name is not None and name in self.vars:
            return self._check_existing(self.vars[name], options)
        variable = Variable(self, **options)
        self.vars[variable.name] = variable
        if options.get("initializer") is not None:
            options["initializer"](variable, self)
        self.program.changed()
        return variable

    def _check_existing(self, variable: Variable, options: dict[str, Any]) -> Variable:
        for field in ("shape", "dtype"):
            asked = options.get(field)
            if asked is None:
                continue
            probe = Variable(self, name=variable.name, **{field: asked})
            known = getattr(variable, "_" + field)
            if known not in ((), None) and getattr(probe, field) != known:
                raise ValueError(
                    f"variable {variable.name} already exists with {field} {known}; it cannot be created with {asked}"
                )
            setattr(variable, "_" + field, getattr(probe, "_" + field))
        if options.get("persistable"):
            variable.persistable = True
        return variable

    def create_parameter(self, **options: Any) -> Parameter:
        """Creates a parameter in the global block; its initializer appends an op to this block."""
        initializer = options.pop("initializer", None)
        home = self.program.global_block()
        existing = home.vars.get(options.get("name") or "")
        if isinstance(existing, Parameter) and existing.shape != tuple(options["shape"]):
            raise ValueError(
                f"parameter {existing.name} already exists with shape {list(existing.shape)}; "
                f"it cannot be shared with shape {list(options['shape'])}"
            )
        parameter = Parameter(home, **options)
        home.vars[parameter.name] = parameter
        if initializer is not None and not self._is_initialized(parameter.name):
            initializer(parameter, self)
        self.program.changed()
        return parameter

    def _is_initialized(self, name: str) -> bool:
        """Returns whether the parameter is already initialized; a shared one must not be initialized twice."""
        return any(name in op.output_arg_names for op in self.ops)

    def all_parameters(self) -> list[Parameter]:
        return [v for v in self.vars.values() if isinstance(v, Parameter)]

    def iter_parameters(self) -> Iterable[Parameter]:
        return (v for v in self.vars.values() if isinstance(v, Parameter))

    def remove_var(self, name: str) -> None:
        self.vars.pop(name, None)
        self.program.changed()

    _remove_var = remove_var

    def _clone_variable(self, var: Variable, force_persistable: bool = True) -> Variable:
        if var.name in self.vars:
            return self.vars[var.name]
        clone = Variable(self, type=var.type, name=var.name, lod_level=var.lod_level, is_data=var.is_data)
        clone._shape, clone._dtype, clone.read_tensors = var._shape, var._dtype, var.read_tensors
        clone._persistable = True if force_persistable else var.persistable
        self.vars[clone.name] = clone
        self.program.changed()
        return clone

    def rename_var(self, name: str, new_name: str) -> Variable:
        """Renames a variable in this block and in all its operators."""
        variable = self.var(name)
        del self.vars[name]
        variable.name = new_name
        self.vars[new_name] = variable
        for op in self.ops:
            op.rename_input(name, new_name)
            op.rename_output(name, new_name)
        return variable

    _rename_var = rename_var

    # Operators

    def append_op(self, *args: Any, **options: Any) -> Operator:
        """Appends an operator and infers the shapes and dtypes of its outputs.

        Args are those of ``Operator``: type, inputs, outputs, attrs.
        """
        return self._insert(len(self.ops), *args, **options)

    def prepend_op(self, *args: Any, **options: Any) -> Operator:
        """Inserts an operator at the beginning."""
        return self._insert(0, *args, **options)

    _prepend_op = prepend_op

    def insert_op(self, index: int, *args: Any, **options: Any) -> Operator:
        """Inserts an operator before the one at ``index``."""
        return self._insert(index, *args, **options)

    _insert_op = insert_op

    def _insert(
        self,
        index: int,
        type: str | None = None,
        inputs=None,
        outputs=None,
        attrs=None,
        **_,
    ) -> Operator:
        if type is None:
            raise ValueError("append_op requires an op type")
        op = Operator(self, type, inputs, outputs, attrs, user_line())
        for name, value in self.program.current_op_attrs().items():
            op.attrs.setdefault(name, value)
        op.infer()
        self.ops.insert(index, op)
        for name in op.output_arg_names:
            variable = self.find_var_recursive(name)
            if variable is not None:
                variable.op = op
        self.program.changed()
        return op

    def remove_op(self, index: int, sync: bool = True) -> None:
        del self.ops[index]
        self.program.changed()

    _remove_op = remove_op

    def _slice_ops(self, start: int, end: int) -> list[Operator]:
        return self.ops[start:end]

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Returns readable text, or with ``throw_on_error`` the text of the protobuf message, as Fluid does."""
        from refluid.ir.text import block_text, message_text

        return message_text(self, with_details) if throw_on_error else block_text(self, with_details)

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from refluid.ir.html import block_html

        return block_html(self)
