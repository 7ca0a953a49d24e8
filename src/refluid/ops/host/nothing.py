"""Ops about memory and devices, which have nothing to do here: XLA frees memory, and places belong to executors."""

from __future__ import annotations

from refluid.ops.core.infer import described_elsewhere
from refluid.ops.core.registry import op


@op("delete_var", inputs="X*", outputs="", grad=None, lod="aware")
def delete_var(xs):
    """Frees nothing: variables that no later op reads are freed anyway."""
    return ()


@op("get_places", inputs="", outputs="Out?", grad=None, lod=None, infer=described_elsewhere)
def get_places(*, device_count=0, device_type="AUTO"):
    """Leaves its list of places unwritten: no op reads one since Fluid 0.15, and none could be a value on a device."""
    return None
