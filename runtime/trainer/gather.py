"""Gathers whole variables from the slices that servers hold, for a trainer that saves or reads them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from refluid.ir import Program, Variable
from refluid.ir.slices import Slice
from refluid.lowering.plan import communicates
from refluid.runtime.trainer import session as sessions
from refluid.runtime.trainer.exchange_plan import SlicedVariable
from refluid.runtime.trainer.packing import Message, join
from refluid.runtime.trainer.server_calls import READ
from refluid.runtime.trainer.session import Session
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import dense, pb
from refluid.scope import Scope
from refluid.tensors import LoDTensor

_WIDEST = 8  # bytes of an element: servers report shapes, not dtypes


class Gathered(NamedTuple):
    """What is saved: a scope that holds whole variables, the variables, and the tables that only servers can write."""

    scope: Scope
    variables: list[Variable]
    tables: list[str]


def gather_to_save(program: Program, scope: Scope, variables: Iterable[Variable], *, complete: bool) -> Gathered:
    """Gathers whole variables in a scope.

    Variables that servers train come from them; tables that grow, and the states of their optimizers, stay there.
    ``complete`` adds what only servers have, such as the state of optimizers, if ``program`` is a trainer's. In a
    process without servers, the scope and the variables are those given.
    """
    chosen = list(variables)
    session = sessions.current()
    if session is None:
        if any(communicates(op) for op in program.global_block().ops):
            raise RuntimeError("this trainer has left its job and cannot read from servers; save before exe.close()")
        return Gathered(scope, chosen, [])
    session.flush()
    held = {name: slices for name, slices in inventory(session).items() if name not in session.kept}
    names = {variable.name for variable in chosen} & held.keys()
    if complete and any(communicates(op) for op in program.global_block().ops):
        names = set(held)
    tables = sorted(name for name in names if held[name][0].grows)
    values = gather(session, [held[name] for name in sorted(names.difference(tables))])
    gathered = Scope(scope)
    described = Program().global_block()
    known = {variable.name for variable in chosen}
    for name, value in values.items():
        gathered.own_var(name).value = LoDTensor(value)
        if name not in known:
            chosen.append(described.create_var(name=name, shape=value.shape, dtype=value.dtype, persistable=True))
    return Gathered(gathered, [variable for variable in chosen if variable.name not in tables], tables)


def inventory(session: Session) -> dict[str, list[Slice]]:
    """The slices of each variable that servers hold."""
    found: dict[str, list[Slice]] = {}
    for endpoint in session.job.endpoints:
        message = session.call(endpoint, "Inventory", pb.CallerRequest(caller=session.caller))
        for text in json.loads(wire.decode(pb.Text, message).text):
            part = Slice.parse(text, endpoint)
            slices = found.setdefault(part.whole, [])
            if all(part.start != other.start for other in slices):  # a learning rate is on all servers
                slices.append(part)
    return found


def gather(session: Session, wanted: Sequence[Sequence[Slice]]) -> dict[str, np.ndarray]:
    """Whole variables as servers have them now, by name."""
    by_server: dict[str, list[Slice]] = {}
    for slices in wanted:
        for part in slices:
            by_server.setdefault(part.endpoint, []).append(part)
    messages = {
        endpoint: Message({}, [part.name for part in parts], sum(_WIDEST * math.prod(part.shape) for part in parts))
        for endpoint, parts in by_server.items()
    }
    replies = session.exchange(READ, messages) if messages else {}
    found = {}
    for slices in wanted:
        first = slices[0]
        dtype = dense(replies[first.endpoint][first.name]).dtype
        found[first.whole] = join(SlicedVariable(first.whole, tuple(slices), dtype), replies)
    return found
