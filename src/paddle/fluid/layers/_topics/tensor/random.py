"""Random numbers and random crops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.fluid.data_feeder import check_dtype, check_type
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import FLOATING, append_output, append_single_op, without_gradient
from refluid.ir import Variable, VarType, as_dtype, unique_name

__all__ = [
    "gaussian_random",
    "gaussian_random_batch_size_like",
    "random_crop",
    "uniform_random",
    "uniform_random_batch_size_like",
]

Shape = Sequence[int | Variable] | Variable


def uniform_random(
    shape: Shape, dtype: Any = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0, name: str | None = None
) -> Variable:
    """Draws numbers uniformly from [min, max).

    Args:
      shape: a list of integers or variables, or one variable that holds all sizes.
      seed: a nonzero seed draws the same numbers in every run.
    """
    check_dtype(dtype, "dtype", FLOATING, "uniform_random")
    helper = LayerHelper("uniform_random", name=name)

    def size(dim: int) -> Variable:
        return _constant(dim, "int64", out=helper.create_variable_for_type_inference("int64"))

    attrs, inputs = _shape_arguments("uniform_random", shape, size)
    attrs |= {"min": min, "max": max, "seed": seed, "dtype": int(as_dtype(dtype))}
    return append_output(helper, inputs, dtype, attrs)


def gaussian_random(
    shape: Shape, mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: Any = "float32", name: str | None = None
) -> Variable:
    """Draws numbers from the normal distribution with ``mean`` and ``std``; ``shape`` is as for uniform_random."""
    check_dtype(dtype, "dtype", FLOATING, "gaussian_random")
    helper = LayerHelper("gaussian_random", name=name)
    out = helper.create_variable_for_type_inference(dtype)
    attrs, inputs = _shape_arguments("gaussian_random", shape, lambda dim: _constant(dim, "int32"), cast=_as_int32)
    attrs |= {"mean": mean, "std": std, "seed": seed, "dtype": int(as_dtype(dtype)), "use_mkldnn": False}
    helper.append_op(type="gaussian_random", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def uniform_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Like uniform_random; dim ``output_dim_idx`` has the size of the input's dim ``input_dim_idx``."""
    attrs = {"min": min, "max": max, "seed": seed}
    return _batch_size_like("uniform_random", input, shape, dtype, input_dim_idx, output_dim_idx, attrs)


def gaussian_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """Like gaussian_random; dim ``output_dim_idx`` has the size of the input's dim ``input_dim_idx``."""
    attrs = {"mean": mean, "std": std, "seed": seed}
    return _batch_size_like("gaussian_random", input, shape, dtype, input_dim_idx, output_dim_idx, attrs)


def random_crop(x: Variable, shape: Sequence[int], seed: int | Variable | None = None) -> Variable:
    """Crops a random window of ``shape`` from the last dims of each sample.

    Args:
      seed: the initial seed, or a variable that carries it from run to run.
    """
    check_type(x, "x", Variable, "random_crop")
    helper = LayerHelper("random_crop")
    out = helper.create_variable_for_type_inference(x.dtype)
    seed, attrs = carried_seed(helper, seed)
    inputs, outputs = {"X": [x], "Seed": [seed]}, {"Out": [out], "SeedOut": [seed]}
    helper.append_op(type="random_crop", inputs=inputs, outputs=outputs, attrs={"shape": list(shape), **attrs})
    return out


def carried_seed(helper: LayerHelper, seed: int | Variable | None) -> tuple[Variable, dict[str, Any]]:
    """Returns a variable that carries a seed from run to run, and the attributes that say where it begins."""
    if seed is None:
        seed = int(np.random.randint(-65536, 65536))
    check_type(seed, "seed", (int, Variable), helper.layer_type)
    if isinstance(seed, Variable):
        return seed, {}
    name = unique_name.generate(f"{helper.layer_type}_seed")
    variable = helper.create_variable(name=name, shape=[1], dtype="int64", persistable=True)
    # Fluid leaves the variable uninitialized until the op runs; here the startup program fills it.
    return helper.set_variable_initializer(variable, Constant(seed)), {"startup_seed": seed}


def _batch_size_like(
    kind: str, input: Variable, shape: Sequence[int], dtype: Any, input_dim: int, output_dim: int, attrs: dict[str, Any]
) -> Variable:
    layer = kind + "_batch_size_like"
    check_type(input, "input", Variable, layer)
    check_type(shape, "shape", (list, tuple), layer)
    check_dtype(dtype, "dtype", FLOATING, layer)
    dims = {"shape": list(shape), "input_dim_idx": input_dim, "output_dim_idx": output_dim}
    attrs = {**dims, **attrs, "dtype": int(as_dtype(dtype))}
    return append_single_op(layer, {"Input": input}, {"Out": dtype}, attrs)["Out"]


def _shape_arguments(layer: str, shape: Shape, size: Any, cast: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the attributes and inputs that carry the shape; one variable size makes all sizes variables."""
    cast = cast or (lambda variable: variable)
    if isinstance(shape, Variable):
        return {}, {"ShapeTensor": cast(without_gradient(shape))}
    if not isinstance(shape, list | tuple) or not shape:
        raise TypeError(f"{layer}: shape must be a Variable or a non-empty list of sizes, not {shape!r}")
    attrs = {"shape": [-1 if isinstance(dim, Variable) else int(dim) for dim in shape]}
    if not any(isinstance(dim, Variable) for dim in shape):
        if any(dim <= 0 for dim in attrs["shape"]):
            raise ValueError(f"{layer}: all sizes must be positive, got {attrs['shape']}")
        return attrs, {}
    sizes = [cast(without_gradient(dim)) if isinstance(dim, Variable) else size(dim) for dim in shape]
    return attrs, {"ShapeTensorList": sizes}


def _constant(value: int, dtype: str, out: Variable | None = None) -> Variable:
    from paddle.fluid.layers import fill_constant

    return fill_constant([1], dtype, value, force_cpu=True, out=out)


def _as_int32(variable: Variable) -> Variable:
    from paddle.fluid.layers import cast

    return cast(variable, "int32") if variable.dtype == VarType.INT64 else variable
