"""Updates by optax transformations, which are attributes: whole parameters, rows of parameters, all parameters at once.

What all parameters share of a transformation's state, such as the number of the step, is its clock; it advances apart
from the updates, like a learning rate schedule.
"""

from __future__ import annotations

from typing import Any

from refluid.ops.core.registry import op
from refluid.ops.optimizer.sparse_update import Touched

_SLOTS: dict[str, Any] = {"inputs": "Param Grad State*? Now*?", "outputs": "ParamOut StateOut*?"}


@op("optax_clock", inputs="Clock*", outputs="Now* ClockOut*", grad=None)
def optax_clock(clock, *, update):
    """The clock of this step, and that of the next one."""
    return clock, update.advance(clock)


@op("optax_update", **_SLOTS, grad=None)
def optax_update(param, grad, states, now, *, update):
    """The update of a parameter that has to be seen as a whole."""
    if hasattr(grad, "rows"):
        raise TypeError(
            f"{update} needs whole gradients, but this one is sparse: build the embedding with is_sparse=False, "
            "or use a transformation that works element by element"
        )
    return update(param, grad, states, now)


@op("optax_row_update", **_SLOTS, grad=None, slices="rows")
def optax_row_update(param, grad, states, now, *, update):
    """The update of a parameter element by element; of a sparse gradient, only the rows that it has."""
    touched = Touched(grad)
    if touched.rows is None:
        return update(param, grad, states, now)
    whole = [state.shape == param.shape for state in states]
    taken = [touched.take(state) if full else state for state, full in zip(states, whole, strict=True)]
    moved, changed = update(touched.take(param), touched.grad, taken, now)
    kept = zip(states, changed, whole, strict=True)
    return touched.put(param, moved), [touched.put(old, new) if full else new for old, new, full in kept]


@op("optax_joint_update", inputs="Param* Grad* State*?", outputs="ParamOut* StateOut*?", grad=None)
def optax_joint_update(params, grads, states, *, update):
    """The updates of all parameters, by a transformation that looks at several of them at once."""
    return update(params, grads, states)
