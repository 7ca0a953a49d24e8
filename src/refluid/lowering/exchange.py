"""Where a compiled program meets other processes.

Operators whose role is RPC or Dist are not run one by one: neighbouring ones are planned together by the runtime, which
moves all they ask for in as few messages as possible. The runtime is loaded only when a program has such operators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from refluid.ir.operator import Operator
from refluid.lowering.plan import Piece
from refluid.scope import Scope


class Exchange(ABC):
    """One conversation with other processes, held once per step."""

    @abstractmethod
    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        """Sends what the operators send of ``env`` and returns what they receive."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """Tells the other side that this process is done."""


def bind_exchange(piece: Piece, scope: Scope, place: Any) -> Exchange:
    """The runtime's plan for the operators of a piece."""
    plan = import_module("refluid.runtime.exchanges").plan_exchange
    operators: Sequence[Operator] = piece.schedule.ops
    return plan(operators, scope, place)
