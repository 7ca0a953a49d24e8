"""Replicas of a program without devices of their own: a pure function of the program, mapped over an axis."""

import jax
import numpy as np

import refluid
from refluid.ops.core import replicas


class Replicas:
    """Runs ``count`` replicas of a program, each with its own state, all beginning with that of the scope."""

    def __init__(self, program, feeds, fetches, count):
        function, state = refluid.to_jax(program, feeds, fetches)
        self.count = count
        self.state = {name: np.stack([np.asarray(value)] * count) for name, value in state.items()}
        self._step = jax.jit(jax.vmap(lambda state, feeds: function(state, **feeds), axis_name=replicas.AXIS))

    def run(self, **feeds):
        """One step; feeds hold the batches of all replicas, one after the other. Returns fetches, stacked."""
        split = {name: value.reshape(self.count, -1, *value.shape[1:]) for name, value in feeds.items()}
        with replicas.traced_for(self.count), jax.enable_x64(True):
            fetched, self.state = self._step(self.state, split)
        return [np.asarray(value) for value in fetched]
