"""Which exchange the operators of a program stand for. Trainers and servers are imported only where they run."""

from __future__ import annotations

from collections.abc import Sequence

from refluid.ir.operator import Operator
from refluid.lowering.exchange import Exchange
from refluid.places import Place
from refluid.scope import Scope
from refluid.tensors import RemoteArray


def plan_exchange(ops: Sequence[Operator], scope: Scope, place: Place) -> Exchange:
    """The exchange of neighbouring operators with role RPC or Dist."""
    if ops[0].type == "listen_and_serv":
        from refluid.runtime.server.service import ListenAndServe

        return ListenAndServe(ops[0], scope, place)
    if ops[0].type == "server_sum":
        from refluid.runtime.server.peers import ServerSums

        return ServerSums(ops)
    if _looks_up_any(ops, scope):
        from refluid.runtime.inference.any_rows import AnyRowLookups

        return AnyRowLookups(ops, scope)
    from refluid.runtime.trainer.exchanges import plan_trainer_exchange

    return plan_trainer_exchange(ops, scope, place)


def _looks_up_any(ops: Sequence[Operator], scope: Scope) -> bool:
    """Whether operators look rows up in tables of any ids in this process, not on servers."""
    tables = {name for op in ops if (slot := op.definition.rows_of) is not None for name in op.input(slot)}
    held = {name: scope.find_var(name) for name in tables}
    return any(isinstance(v.value, RemoteArray) and v.value.any_ids for v in held.values() if v is not None)
