"""Exchange pieces: where a step communicates with other processes.

Operators whose role is RPC or Dist are not run one by one: neighbouring ones are planned together by the runtime, which
moves all they need in as few messages as possible. The runtime is loaded only when a program has such operators.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from refluid import profiling
from refluid.lowering.joined import parts_of
from refluid.lowering.pieces import Binding, BoundPiece, Options, Run, StepPiece
from refluid.lowering.plan import Piece
from refluid.meshes import Replicas


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

    expects = False  # whether it requests early what the following step needs

    def expect(self, feeds: Mapping[str, Any]) -> None:  # noqa: B027 - most have nothing to do early
        """Announces the feeds of the following step: what that will need may be requested from now on."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Notifies the other side that this process is done."""


class OneOf(Mapping[str, Any]):
    """What several replicas exchange, as one trainer: their gradients, which they have summed, and all their ids."""

    def __init__(self, env: Mapping[str, Any], state: frozenset[str], target: Replicas):
        self._env, self._state, self._target = env, state, target

    def __getitem__(self, name: str) -> Any:
        value = self._env[name]
        if name in self._state or np.issubdtype(value.dtype, np.integer):
            return value
        return parts_of(value, self._target)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._env)

    def __len__(self) -> int:
        return len(self._env)


class ExchangePiece(StepPiece):
    """Operators that the runtime runs as one exchange."""

    def __init__(self, piece: Piece, options: Options):
        self._ops, self._options = piece.schedule.ops, options

    def bind(self, binding: Binding) -> BoundPiece:
        plan_exchange = import_module("refluid.runtime.exchanges").plan_exchange
        exchange: Exchange = plan_exchange(self._ops, binding.scope(), self._options.place)
        binding.on_close.append(exchange.close)
        if exchange.expects:
            binding.on_expect.append(exchange.expect)
        return partial(self._run, exchange, binding)

    def _run(self, exchange: Exchange, binding: Binding, run: Run) -> None:
        began = time.perf_counter()
        target = self._options.target
        env = OneOf(run.env, self._options.state, target) if isinstance(target, Replicas) else run.env
        with profiling.record("exchange"):
            received = exchange(env)
        _spent.seconds += time.perf_counter() - began
        if isinstance(target, Replicas):
            received = {name: target.move(v) if name in self._options.state else v for name, v in received.items()}
        run.env.update(received)
        for name in received.keys() & self._options.persists:
            binding.holders[name].value = received[name]
