"""Whole variables put together from the slices that servers hold, for a trainer that saves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from refluid.ir import Program, Variable
from refluid.ir.slices import Slice
from refluid.lowering.plan import talks
from refluid.runtime.trainer import session as sessions
from refluid.runtime.trainer.session import READ, Message, Session
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import dense, pb
from refluid.scope import Scope
from refluid.tensors import LoDTensor


def scope_to_save(program: Program, scope: Scope, variables: Iterable[Variable], complete: bool):
    """A scope that holds whole variables, and the variables to save.

    What servers train comes from them. ``complete`` adds what only they have, such as the state of optimizers, if
    ``program`` is a trainer's. In a process that trains alone, scope and variables are those given.
    """
    chosen = list(variables)
    session = sessions.current()
    if session is None:
        if any(talks(op) for op in program.global_block().ops):
            raise RuntimeError("this trainer has left its job, so servers cannot be asked; save before exe.close()")
        return scope, chosen
    inventory = {name: places for name, places in _inventory(session).items() if name not in session.kept}
    names = {variable.name for variable in chosen} & inventory.keys()
    if complete and any(talks(op) for op in program.global_block().ops):
        names = set(inventory)
    values = _whole(session, {name: inventory[name] for name in sorted(names)})
    gathered = Scope(scope)
    described = Program().global_block()
    known = {variable.name for variable in chosen}
    for name, value in values.items():
        gathered.own_var(name).value = LoDTensor(value)
        if name not in known:
            chosen.append(described.create_var(name=name, shape=value.shape, dtype=value.dtype, persistable=True))
    return gathered, chosen


def _inventory(session: Session) -> dict[str, list[tuple[str, Slice]]]:
    """Whole variables, and where their slices are."""
    found: dict[str, list[tuple[str, Slice]]] = {}
    session.flush()
    for endpoint in session.job.endpoints:
        message = session.tell(endpoint, "Inventory", pb.CallerRequest(caller=session.caller))
        for text in json.loads(wire.decode(pb.Text, message).text):
            part = Slice.parse(text)
            places = found.setdefault(part.whole, [])
            if all(part.start != other.start for _, other in places):  # a learning rate is on all servers
                places.append((endpoint, part))
    return found


def _whole(session: Session, wanted: Mapping[str, list[tuple[str, Slice]]]) -> dict[str, np.ndarray]:
    messages: dict[str, Message] = {}
    for places in wanted.values():
        for endpoint, part in places:
            message = messages.setdefault(endpoint, Message({}, []))
            message.wanted = [*message.wanted, part.name]
    answers = session.exchange(READ, messages) if messages else {}
    found = {}
    for name, places in wanted.items():
        parts = [(part, answers[endpoint][part.name]) for endpoint, part in places]
        first: Any = parts[0][1]
        whole = np.empty(parts[0][0].whole_shape, first.dtype)
        for part, value in parts:
            whole[part.start : part.end] = dense(value)
        found[name] = whole
    return found
