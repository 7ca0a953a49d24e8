"""Integer arguments of layers (shapes, axes, bounds) that may contain variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import without_gradient
from refluid.ir import Variable

Integers = Variable | Sequence[int | Variable]


def pass_integers(
    helper: LayerHelper, what: str, values: Integers, slot: str, list_slot: str, unknown: int = -1
) -> tuple[dict[str, Any], list[int] | None]:
    """Returns the inputs that carry ``values``, and the attribute that holds the statically known part.

    Args:
      what: the name of the layer's argument, for error messages.
      slot: the input slot for a single variable that holds all integers; the attribute is None then.
      list_slot: the input slot for a list that contains variables; its plain integers become variables too.
      unknown: the placeholder for a variable in the attribute.
    """
    check_type(values, what, (Variable, list, tuple), helper.layer_type)
    if isinstance(values, Variable):
        return {slot: without_gradient(values)}, None
    attr = [unknown if isinstance(value, Variable) else check_integer(helper, what, value) for value in values]
    if not any(isinstance(value, Variable) for value in values):
        return {}, attr
    return {list_slot: [integer_variable(helper, value) for value in values]}, attr


def check_integer(helper: LayerHelper, what: str, value: Any) -> int:
    """Returns ``value`` as an int; raises TypeError if it is not an integer."""
    check_type(value, what, (int, np.integer), helper.layer_type)
    return int(value)


def per_dim(value: Any, rank: int, name: str) -> list[int]:
    """Returns ``value`` as ``rank`` integers, repeating a single number."""
    if isinstance(value, int):
        return [value] * rank
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != rank:
        raise ValueError(f"{name} must be a number or {rank} numbers, not {value!r}")
    return [int(size) for size in value]


def integer_variable(helper: LayerHelper, value: int | Variable) -> Variable:
    """Returns ``value`` as a variable; an integer becomes an int32 constant."""
    from paddle.fluid.layers._topics.tensor.create import fill_constant

    if isinstance(value, Variable):
        return without_gradient(value)
    out = helper.create_variable_for_type_inference("int32")
    return fill_constant([1], "int32", value, force_cpu=True, out=out)
