"""Scopes: variables and their values. A step reads its state from a scope and writes it back."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from refluid.ops.core.values import SelectedRows
from refluid.tensors import LoDTensor, LoDTensorArray, RemoteArray, SelectedRowsTensor, to_device

_uids = itertools.count()


class ScopeVariable:
    """A named value: a tensor, selected rows or an array of tensors, whichever is requested or written first."""

    __slots__ = ("holder", "name")

    def __init__(self, name: str):
        self.name = name
        self.holder: Any = None

    def get_tensor(self) -> LoDTensor:
        """Returns the tensor, creating it on first use."""
        return self._get(LoDTensor)

    def get_selected_rows(self) -> SelectedRowsTensor:
        """Returns the selected rows, creating them on first use."""
        return self._get(SelectedRowsTensor)

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """Returns the array of tensors, creating it on first use."""
        return self._get(LoDTensorArray)

    def get_reader(self) -> Any:
        """Returns the reader that a program has put here."""
        if self.holder is None or isinstance(self.holder, LoDTensor | SelectedRowsTensor | LoDTensorArray):
            raise RuntimeError(f"variable {self.name} holds no reader; run the program that makes it first")
        return self.holder

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
            values = holder.get_tensor().value
            return None if values is None else SelectedRows(to_device(holder._rows), values, holder.height())
        return holder

    @value.setter
    def value(self, value: Any) -> None:
        if isinstance(value, SelectedRows) and isinstance(self.holder, SelectedRowsTensor):
            self.holder.hold(value)  # users may keep it, and a step frees the arrays it held
        elif isinstance(value, SelectedRows):
            self.holder = SelectedRowsTensor.of(value)
        elif isinstance(value, LoDTensor | SelectedRowsTensor | LoDTensorArray):
            self.holder = value
        elif isinstance(self.holder, LoDTensor):
            self.holder.value = value
        else:
            self.holder = LoDTensor(value)


class Scope:
    """Maps names to variables; names that are missing here are looked up in the parent."""

    def __init__(self, parent: Scope | None = None):
        self.parent = parent
        self.uid = next(_uids)
        self._variables: dict[str, ScopeVariable] = {}
        self._kids: list[Scope] = []
        self._remote: frozenset[str] = frozenset()
        self.epoch = 0  # changes when variables are erased or become remote, so that steps look them up again
        self._steps: dict[int, int] = {}
        self._entropy = secrets.randbits(32)
        self.changing = threading.RLock()  # held by a step while it changes state

    def var(self, name: str) -> ScopeVariable:
        """Returns the variable of that name, creating it here if neither this scope nor a parent has it."""
        found = self.find_var(name)
        if found is None:
            found = self._variables.setdefault(name, ScopeVariable(name))  # threads may create it at the same time
        return found

    def own_var(self, name: str) -> ScopeVariable:
        """Returns the variable of that name in this scope itself, creating it if needed."""
        return self._variables.setdefault(name, ScopeVariable(name))

    def find_var(self, name: str) -> ScopeVariable | None:
        """Returns the variable of that name here or in a parent, or None."""
        found = self._variables.get(name)
        if found is None and self.parent is not None:
            return self.parent.find_var(name)
        return found

    def erase(self, names: list[str]) -> None:
        """Removes variables from this scope."""
        for name in names:
            self._variables.pop(name, None)
        self._remote -= set(names)
        self.epoch += 1

    _remove_from_pool = erase

    def hold_remotely(self, name: str, array: RemoteArray) -> None:
        """Gives the variable of that name a value that other processes hold; steps learn of it when they run next."""
        if name not in self._variables and self.parent is not None and self.parent.find_var(name) is not None:
            self.parent.hold_remotely(name, array)
        else:
            self.own_var(name).get_tensor().value = array
            self._remote |= {name}
        self.epoch += 1

    @property
    def remote(self) -> frozenset[str]:
        """The variables, here and in parents, whose values other processes hold."""
        held = self._remote
        if held:  # but for those that this process has given a value of its own since
            held = frozenset(name for name in held if isinstance(self._variables[name].value, RemoteArray))
        return held if self.parent is None else held | self.parent.remote

    def local_var_names(self) -> list[str]:
        """Returns the names of the variables created here."""
        return list(self._variables)

    def new_scope(self) -> Scope:
        """Creates a child scope."""
        kid = Scope(self)
        self._kids.append(kid)
        return kid

    def drop_kids(self) -> None:
        """Drops the child scopes."""
        self._kids.clear()

    def next_step(self, program_uid: int) -> int:
        """Counts a run of a program with random ops and returns the number of earlier runs, part of the key data."""
        step = self._steps.get(program_uid, 0)
        self._steps[program_uid] = step + 1
        return step

    def runs_of(self, program_uid: int) -> int:
        """Returns how many times a program with random ops has run here."""
        return self._steps.get(program_uid, 0)

    def restore_random(self, program_uid: int, runs: int, entropy: int) -> None:
        """Continues the random streams of a program where another process stopped."""
        self._steps[program_uid] = runs
        self._entropy = entropy

    @property
    def entropy(self) -> int:
        """The seed of programs without one: fresh in every scope."""
        return self._entropy


_global_scope = Scope()


def global_scope() -> Scope:
    """Returns the scope that programs run in by default."""
    return _global_scope


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Makes ``scope`` the global scope within a ``with`` block."""
    global _global_scope
    before, _global_scope = _global_scope, scope
    try:
        yield
    finally:
        _global_scope = before
