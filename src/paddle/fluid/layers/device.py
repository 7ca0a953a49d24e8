"""Fluid's module path for lists of devices."""

from __future__ import annotations

import warnings

from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable, VarType

__all__: list[str] = []  # as in Fluid, get_places is not among fluid.layers


def get_places(device_count: int | None = None, device_type: str | None = None) -> Variable:
    """Appends an op that lists devices, for old programs; nothing reads the list since Fluid 0.15."""
    message = "get_places is deprecated since Fluid 0.15: give places to CompiledProgram.with_data_parallel"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    helper = LayerHelper("get_places")
    places = helper.main_program.current_block().create_var(
        name=f"{helper.name}.out_0", type=VarType.PLACE_LIST, stop_gradient=True
    )
    attrs = {"device_count": device_count, "device_type": device_type}
    helper.append_op(type="get_places", outputs={"Out": places}, attrs=attrs)
    return places
