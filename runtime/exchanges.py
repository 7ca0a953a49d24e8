"""Which exchange the operators of a program stand for. Trainers and servers are imported only where they run."""

from __future__ import annotations

from collections.abc import Sequence

from refluid.ir.operator import Operator
from refluid.lowering.exchange import Exchange
from refluid.places import Place
from refluid.scope import Scope


def plan_exchange(ops: Sequence[Operator], scope: Scope, place: Place) -> Exchange:
    """The exchange of neighbouring operators with role RPC or Dist."""
    if ops[0].type == "listen_and_serv":
        from refluid.runtime.server.service import ListenAndServe

        return ListenAndServe(ops[0], scope, place)
    if ops[0].type == "server_sum":
        from refluid.runtime.server.peers import ServerSums

        return ServerSums(ops)
    from refluid.runtime.trainer.exchanges import plan_trainer_exchange

    return plan_trainer_exchange(ops, scope, place)
