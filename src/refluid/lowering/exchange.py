"""Exchange pieces: where a step communicates with other processes.

Operators whose role is RPC or Dist are not run one by one: neighbouring ones are planned together by the runtime, which
moves all they need in as few messages as possible. The runtime is loaded only when a program has such operators.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

from refluid import profiling
from refluid.lowering.pieces import Binding, BoundPiece, Options, Run, StepPiece
from refluid.lowering.plan import Piece


class _Spent(threading.local):
    seconds = 0.0


_spent = _Spent()


def seconds_exchanging() -> float:
    """How long the steps of this thread have been in exchanges, all together."""
    return _spent.seconds


class Exchange(ABC):
    """One communication with other processes, once per step."""

    @abstractmethod
    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        """Sends what the operators send of ``env`` and returns what they receive."""

    def expect(self, feeds: Mapping[str, Any]) -> None:  # noqa: B027 - most have nothing to do early
        """Announces the feeds of the following step: what that will need may be requested from now on."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Notifies the other side that this process is done."""


class ExchangePiece(StepPiece):
    """Operators that the runtime runs as one exchange."""

    def __init__(self, piece: Piece, options: Options):
        self._ops, self._options = piece.schedule.ops, options

    def bind(self, binding: Binding) -> BoundPiece:
        plan_exchange = import_module("refluid.runtime.exchanges").plan_exchange
        exchange: Exchange = plan_exchange(self._ops, binding.scope(), self._options.place)
        binding.on_close.append(exchange.close)
        binding.on_expect.append(exchange.expect)
        return partial(self._run, exchange, binding)

    def _run(self, exchange: Exchange, binding: Binding, run: Run) -> None:
        began = time.perf_counter()
        with profiling.record("exchange"):
            received = exchange(run.env)
        _spent.seconds += time.perf_counter() - began
        run.env.update(received)
        for name in received.keys() & self._options.persists:
            binding.holders[name].value = received[name]
