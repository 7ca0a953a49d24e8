"""GEO-SGD on a trainer: local steps, and an exchange of deltas every k of them.

Parameters are trained by the compiled step; rows of tables that grow are copies (`row_copies`), trained here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from refluid.ir.modes import DELTA
from refluid.ops.core.values import plain
from refluid.places import Place
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import ExchangePlan, SlicedVariable
from refluid.runtime.trainer.geo_deltas import Snapshot
from refluid.runtime.trainer.pacing import max_lead
from refluid.runtime.trainer.packing import NO_PULLS, Pulls, Replies, join, on_host, pack
from refluid.runtime.transport.wire import Rows, RowSizes, Value
from refluid.scope import Scope


class GeoExchange(TrainerExchange):
    """Every k steps, pushes deltas and pulls what others have changed."""

    def __init__(self, plan: ExchangePlan, scope: Scope, place: Place):
        super().__init__(plan, place)
        self.declare(DELTA)
        self.pulls = Pulls.of([*plan.pulls, *(trained.table for trained in plan.trained)])
        started = self.session.started_with
        self._scope = scope
        # By table, whether each of its rows was trained since the last push.
        self._touched = {v.name: np.zeros(v.shape[0], np.bool_) for v in plan.pushes if v.ids}
        self._snapshots = {
            v.name: Snapshot(started[v.name], plan.job.trainers) for v in plan.pushes if not plan.averages
        }
        self._row_sizes = RowSizes()
        self._since = 0  # steps since the last push
        unknown = plan.geo_steps - 1
        self.session.unknown_steps = unknown
        self.session.max_lead = max_lead(unknown, f"GEO training exchanges every {plan.geo_steps} steps")
        self.session.on_flush(self.flush)
        self.session.on_leave(self.flush)

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        self.session.step += 1
        self._since += 1
        for variable in self.plan.pushes:
            for name in variable.ids:
                self._touched[variable.name][np.asarray(plain(env[name])).reshape(-1)] = True
        for trained in self.plan.trained:
            grads = on_host(env[trained.grad])
            assert isinstance(grads, Rows)
            self.session.copies.train(trained.table.name, grads, float(np.asarray(env[trained.rate]).reshape(-1)[0]))
        return self._exchange(env) if self._since >= self.session.steps_to_merge(self.plan.geo_steps) else {}

    def flush(self) -> None:
        """Pushes the deltas of the steps since the last exchange; what others have changed is pulled by the next."""
        with self._scope.changing:  # no step changes the parameters meanwhile
            if self._since:
                self._push({v.name: _held(self._scope, v.name) for v in self.plan.pushes}, NO_PULLS)

    def _exchange(self, env: Mapping[str, Any]) -> dict[str, Any]:
        replies = self._push(env, self.pulls)
        self.session.use(replies)
        self.session.copies.receive(replies)
        return {v.name: self._merge(v, env[v.name], replies) for v in self.plan.pushes}

    def _push(self, values: Mapping[str, Any], pulls: Pulls) -> Replies:
        with self.session.copies.lock:
            deltas = [(variable, self._delta(variable, values[variable.name])) for variable in self.plan.pushes]
            steps, self._since = self._since, 0
            return self.session.push(pack([*deltas, *self.session.copies.changes()], pulls, DELTA), steps)

    def _delta(self, variable: SlicedVariable, value: Any) -> Value:
        if self.plan.averages:  # servers compute the mean of whole values
            return np.asarray(value)
        snapshot = self._snapshots[variable.name]
        if variable.name not in self._touched:
            return snapshot.delta(np.asarray(value))
        rows = np.flatnonzero(self._touched[variable.name])
        self._touched[variable.name][rows] = False
        return snapshot.delta_of_rows(np.asarray(value), rows)

    def _merge(self, variable: SlicedVariable, value: Any, replies: Replies) -> Any:
        if self.plan.averages:
            return jax.device_put(join(variable, replies), self._device)
        snapshot = self._snapshots[variable.name]
        if variable.name not in self._touched:
            return jax.device_put(snapshot.merge(np.asarray(value), join(variable, replies)), self._device)
        for part in variable.slices:
            received = replies[part.endpoint][part.name]
            assert isinstance(received, Rows)
            changes = snapshot.changes(Rows(received.rows + part.start, received.values))
            value = _add_rows(
                value, *changes.padded(value.shape[0], self._row_sizes.fit(variable.name, len(changes.rows)))
            )
        return value


def _held(scope: Scope, name: str) -> Any:
    found = scope.find_var(name)
    assert found is not None, f"{name} was trained in this scope"
    return found.value


@partial(jax.jit, donate_argnums=0)
def _add_rows(table: Any, rows: Any, values: Any) -> Any:
    """A table with changes added to some rows, in place where JAX can; only a few sizes are compiled."""
    return table.at[rows].add(values, mode="drop")
