"""Layers made of ops: a function that appends one op, from the op's schema."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from refluid.ops.core.registry import lookup


def generate_layer_fn(op_type: str) -> Callable[..., Any]:
    """Returns a layer that appends ``op_type``; arguments are named like slots, in small letters, and attributes."""
    definition = lookup(op_type)
    slots = {slot.lower(): slot for slot in definition.input_names}
    outputs = [slot for slot in definition.outputs if not slot.optional]

    def layer(*args: Any, **kwargs: Any) -> Any:
        helper = LayerHelper(op_type, name=kwargs.pop("name", None), act=kwargs.pop("act", None))
        inputs = dict(zip(definition.input_names, args, strict=False))
        inputs.update({slots[key]: kwargs.pop(key) for key in list(kwargs) if key in slots})
        first = next((value for value in inputs.values() if value is not None), None)
        dtype = (first[0] if isinstance(first, list | tuple) else first).dtype if first is not None else "float32"
        made = {slot.name: helper.create_variable_for_type_inference(dtype) for slot in outputs}
        helper.append_op(type=op_type, inputs=inputs, outputs=made, attrs=kwargs)
        results = list(made.values())
        return helper.append_activation(results[0]) if len(results) == 1 else results

    layer.__name__ = op_type
    layer.__doc__ = definition.rule.__doc__
    return layer


def generate_activation_fn(op_type: str) -> Callable[..., Any]:
    """Returns a layer of one variable, ``x``, that appends ``op_type``."""

    def layer(x: Any, name: str | None = None) -> Any:
        return generate_layer_fn(op_type)(x, name=name)

    layer.__name__ = op_type
    layer.__doc__ = lookup(op_type).rule.__doc__
    return layer


def deprecated(func_or_class: Any) -> Any:
    """Decorates a function or class whose use warns that it is deprecated."""

    @functools.wraps(func_or_class)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"API {func_or_class.__name__} is deprecated", DeprecationWarning, stacklevel=2)
        return func_or_class(*args, **kwargs)

    return wrapper


def autodoc(comment: str = "") -> Callable[[Any], Any]:
    """Decorates a layer whose documentation is that of its op, after ``comment``."""

    def document(func: Any) -> Any:
        func.__doc__ = f"{comment}{lookup(func.__name__).rule.__doc__}"
        return func

    return document


def templatedoc(op_type: str | None = None) -> Callable[[Any], Any]:
    """Decorates a layer in whose documentation ``${comment}`` stands for that of its op."""

    def document(func: Any) -> Any:
        comment = lookup(op_type or func.__name__).rule.__doc__ or ""
        func.__doc__ = (func.__doc__ or "").replace("${comment}", comment)
        return func

    return document
