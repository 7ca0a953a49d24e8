"""Scopes: where variables have values. A step reads its state here and puts it back."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from refluid.ops.core.values import SelectedRows
from refluid.tensors import LoDTensor, LoDTensorArray, SelectedRowsTensor, to_device

_uids = itertools.count()


class ScopeVariable:
    """A named value: a tensor, selected rows or an array of tensors, whatever was asked for or written first."""

    __slots__ = ("holder", "name")

    def __init__(self, name: str):
        self.name = name
        self.holder: Any = None

    def get_tensor(self) -> LoDTensor:
        """The tensor here; made on first use."""
        return self._get(LoDTensor)

    def get_selected_rows(self) -> SelectedRowsTensor:
        """The selected rows here; made on first use."""
        return self._get(SelectedRowsTensor)

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """The array of tensors here; made on first use."""
        return self._get(LoDTensorArray)

    def _get(self, kind: type) -> Any:
        if self.holder is None:
            self.holder = kind()
        if not isinstance(self.holder, kind):
            raise RuntimeError(f"variable {self.name} holds a {type(self.holder).__name__}, not a {kind.__name__}")
        return self.holder

    def set_int(self, value: int) -> None:
        self.get_tensor().set([value])

    def get_int(self) -> int:
        return int(self.get_tensor()[0])

    def set_float(self, value: float) -> None:
        self.get_tensor().set([value])

    def get_float(self) -> float:
        return float(self.get_tensor()[0])

    @property
    def value(self) -> Any:
        """The value as ops see it, or None."""
        holder = self.holder
        if isinstance(holder, LoDTensor):
            return holder.value
        if isinstance(holder, SelectedRowsTensor):
            return SelectedRows(to_device(holder._rows), holder.get_tensor().value, holder.height())
        return holder

    @value.setter
    def value(self, value: Any) -> None:
        if isinstance(value, SelectedRows):
            self.holder = SelectedRowsTensor.of(value)
        elif isinstance(value, LoDTensor | SelectedRowsTensor | LoDTensorArray):
            self.holder = value
        elif isinstance(self.holder, LoDTensor):
            self.holder.value = value
        else:
            self.holder = LoDTensor(value)


class Scope:
    """Names to values; what is not found here is looked up in the parent."""

    def __init__(self, parent: Scope | None = None):
        self.parent = parent
        self.uid = next(_uids)
        self._variables: dict[str, ScopeVariable] = {}
        self._kids: list[Scope] = []
        self.epoch = 0  # changes when variables disappear, so that nobody keeps writing to them
        self._steps: dict[int, int] = {}
        self._entropy = secrets.randbits(32)
        self.changing = threading.RLock()  # held by a step that changes what is here

    def var(self, name: str) -> ScopeVariable:
        """The variable of that name, created here if no scope has it."""
        found = self.find_var(name)
        if found is None:
            found = self._variables.setdefault(name, ScopeVariable(name))  # threads may ask for it together
        return found

    def own_var(self, name: str) -> ScopeVariable:
        """The variable of that name in this very scope, whatever its parents hold."""
        return self._variables.setdefault(name, ScopeVariable(name))

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable of that name here or in a parent."""
        found = self._variables.get(name)
        if found is None and self.parent is not None:
            return self.parent.find_var(name)
        return found

    def erase(self, names: list[str]) -> None:
        """Forgets variables of this scope."""
        for name in names:
            self._variables.pop(name, None)
        self.epoch += 1

    _remove_from_pool = erase

    def local_var_names(self) -> list[str]:
        """The names of the variables created here."""
        return list(self._variables)

    def new_scope(self) -> Scope:
        """A child scope."""
        kid = Scope(self)
        self._kids.append(kid)
        return kid

    def drop_kids(self) -> None:
        """Forgets the child scopes."""
        self._kids.clear()

    def next_step(self, program_uid: int) -> int:
        """How often a program with random ops ran here before; the number its random keys are folded with."""
        step = self._steps.get(program_uid, 0)
        self._steps[program_uid] = step + 1
        return step

    def runs_of(self, program_uid: int) -> int:
        """How often a program with random ops ran here so far."""
        return self._steps.get(program_uid, 0)

    def restore_random(self, program_uid: int, runs: int, entropy: int) -> None:
        """Makes the random numbers of a program go on from where another process left them."""
        self._steps[program_uid] = runs
        self._entropy = entropy

    @property
    def entropy(self) -> int:
        """The seed of programs without one: fresh in every scope."""
        return self._entropy


_global_scope = Scope()


def global_scope() -> Scope:
    """The scope programs run in when none is given."""
    return _global_scope


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """``scope`` is the global scope inside."""
    global _global_scope
    before, _global_scope = _global_scope, scope
    try:
        yield
    finally:
        _global_scope = before
