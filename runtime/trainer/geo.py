"""GEO-SGD on a trainer: local steps, and a trade of differences every k of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from refluid.ops.core.values import plain
from refluid.runtime.server.shard import round_up
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import Sliced, Traffic
from refluid.runtime.trainer.geo_deltas import DELTA, Snapshot
from refluid.runtime.trainer.packing import join, messages, to_device
from refluid.runtime.transport.wire import Rows, Value


class GeoPushPull(TrainerExchange):
    """Every k steps: differences go out, what others have changed comes in."""

    def __init__(self, traffic: Traffic, place: Any):
        super().__init__(traffic, place)
        self.agree(DELTA)
        trainers = traffic.job.trainers
        started = self.session.started_with
        self._snapshots = {v.name: Snapshot(started[v.name], trainers) for v in traffic.pushes}
        self._touched: dict[str, list[np.ndarray]] = {v.name: [] for v in traffic.pushes if v.ids}
        self._since = 0

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        self.session.step += 1
        self._since += 1
        for variable in self.traffic.pushes:
            for name in variable.ids:
                self._touched[variable.name].append(np.asarray(plain(env[name])).reshape(-1))
        return self._trade(env) if self._since >= self.traffic.geo_steps else {}

    def _trade(self, env: Mapping[str, Any]) -> dict[str, Any]:
        variables = self.traffic.pushes
        pushes = [(variable, self._difference(variable, env[variable.name])) for variable in variables]
        answers = self.session.push(messages(pushes, self.wanted, DELTA), self._since)
        self._since = 0
        return {variable.name: self._merge(variable, env[variable.name], answers) for variable in variables}

    def _difference(self, variable: Sliced, value: Any) -> Value:
        snapshot = self._snapshots[variable.name]
        if variable.name not in self._touched:
            return snapshot.difference(np.asarray(value))
        rows = np.unique(np.concatenate(self._touched[variable.name]))
        self._touched[variable.name] = []
        return snapshot.difference_of_rows(np.asarray(value), rows)

    def _merge(self, variable: Sliced, value: Any, answers: Mapping[str, Mapping[str, Value]]) -> Any:
        snapshot = self._snapshots[variable.name]
        if variable.name not in self._touched:
            return to_device(snapshot.merge(np.asarray(value), join(variable, answers)), self._device)
        for part in variable.slices:
            received = answers[part.endpoint][part.name]
            assert isinstance(received, Rows)
            changes = snapshot.changes(Rows(received.rows + part.begin, received.values))
            value = _add_rows(value, changes)
        return value


def _add_rows(table: Any, changes: Rows) -> Any:
    """A table with some rows changed, in place where JAX can; a few sizes are compiled, not every one."""
    size = round_up(len(changes.rows))
    rows = np.full(size, table.shape[0], np.int64)
    rows[: len(changes.rows)] = changes.rows
    values = np.zeros((size, *table.shape[1:]), table.dtype)
    values[: len(changes.rows)] = changes.values
    return _add(table, rows, values)


@partial(jax.jit, donate_argnums=0)
def _add(table: Any, rows: Any, values: Any) -> Any:
    return table.at[rows].add(values, mode="drop")
