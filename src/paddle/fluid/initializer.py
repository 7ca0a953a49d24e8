"""Parameter initializers. ``initializer(var, block)`` adds one op that fills ``var``, normally to the startup
program, and returns it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from refluid.ir import Block, Operator, Variable, VarType

__all__ = [
    "MSRA",
    "Bilinear",
    "BilinearInitializer",
    "Constant",
    "ConstantInitializer",
    "MSRAInitializer",
    "Normal",
    "NormalInitializer",
    "NumpyArrayInitializer",
    "TruncatedNormal",
    "TruncatedNormalInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
    "force_init_on_cpu",
    "init_on_cpu",
]

_force_init_on_cpu = False


def force_init_on_cpu() -> bool:
    """Returns whether constants are marked for the CPU, which is visible only in saved programs."""
    return _force_init_on_cpu


@contextmanager
def init_on_cpu() -> Iterator[None]:
    """Marks the constants created inside the context for the CPU."""
    global _force_init_on_cpu
    before, _force_init_on_cpu = _force_init_on_cpu, True
    try:
        yield
    finally:
        _force_init_on_cpu = before


class Initializer:
    """Base class of initializers."""

    def __call__(self, param: Variable, block: Block) -> Operator:
        raise NotImplementedError(f"{type(self).__name__} must implement __call__")

    def _compute_fans(self, var: Variable) -> tuple[int, int]:
        """Returns fan-in and fan-out: inputs per output unit, and outputs per input unit."""
        shape = var.shape
        if not shape:
            return 1, 1
        if len(shape) == 1:
            return shape[0], shape[0]
        if len(shape) == 2:
            return shape[0], shape[1]
        receptive_field = math.prod(shape[2:])
        return shape[1] * receptive_field, shape[0] * receptive_field

    def _fill(self, var: Variable, block: Block, type: str, **attrs: Any) -> Operator:
        """Prepends the op, like Fluid, so that it runs before anything the startup program computes."""
        if not isinstance(var, Variable) or not isinstance(block, Block):
            raise TypeError("an initializer must be called with a variable and a block")
        attrs = {"shape": list(var.shape), "dtype": int(var.dtype), **attrs}
        return block._prepend_op(type=type, outputs={"Out": var}, attrs=attrs)

    def _fill_uniform(self, var: Variable, block: Block, low: float, high: float, seed: int, **attrs: Any) -> Operator:
        return self._fill(_floating(var), block, "uniform_random", min=low, max=high, seed=seed, **attrs)

    def _fill_normal(self, var: Variable, block: Block, mean: float, std: float, seed: int) -> Operator:
        return self._fill(_floating(var), block, "gaussian_random", mean=mean, std=std, seed=seed)


class ConstantInitializer(Initializer):
    """Fills every element with ``value``."""

    def __init__(self, value: float = 0.0, force_cpu: bool = False):
        self._value, self._force_cpu = _number(value, "value"), force_cpu

    def __call__(self, var, block):
        force_cpu = bool(self._force_cpu or force_init_on_cpu())
        return self._fill(var, block, "fill_constant", value=self._value, force_cpu=force_cpu)


class UniformInitializer(Initializer):
    """Uniform in [low, high); optionally sets ``diag_num`` elements, ``diag_step`` + 1 apart, to ``diag_val``."""

    def __init__(
        self,
        low: float = -1.0,
        high: float = 1.0,
        seed: int = 0,
        diag_num: int = 0,
        diag_step: int = 0,
        diag_val: float = 1.0,
    ):
        self._low, self._high, self._seed = _number(low, "low"), _number(high, "high"), _seed(seed)
        if self._high < self._low:
            raise ValueError(f"high must not be less than low, got high={high} and low={low}")
        if (diag_num > 0) != (diag_step > 0):
            raise ValueError("diag_num and diag_step must both be positive or both be 0")
        self._diag = {"diag_num": diag_num, "diag_step": diag_step, "diag_val": float(diag_val)}

    def __call__(self, var, block):
        return self._fill_uniform(var, block, self._low, self._high, self._seed, **self._diag)


class NormalInitializer(Initializer):
    """Normal distribution with mean ``loc`` and standard deviation ``scale``."""

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0):
        self._mean, self._std_dev, self._seed = _number(loc, "loc"), _number(scale, "scale"), _seed(seed)

    def __call__(self, var, block):
        return self._fill_normal(var, block, self._mean, self._std_dev, self._seed)


class TruncatedNormalInitializer(NormalInitializer):
    """Normal distribution truncated to two standard deviations around ``loc``."""

    def __call__(self, var, block):
        attrs = {"mean": self._mean, "std": self._std_dev, "seed": self._seed}
        return self._fill(_floating(var), block, "truncated_gaussian_random", **attrs)


class XavierInitializer(Initializer):
    """Xavier (Glorot) initialization, which preserves the variance of activations and gradients across layers.

    Args:
      uniform: draw from a uniform instead of a normal distribution.
      fan_in, fan_out: override the values derived from the parameter's shape.
      seed: 0 uses the program's.
    """

    def __init__(self, uniform: bool = True, fan_in: float | None = None, fan_out: float | None = None, seed: int = 0):
        self._uniform, self._fan_in, self._fan_out, self._seed = uniform, fan_in, fan_out, _seed(seed)

    def __call__(self, var, block):
        fan_in, fan_out = self._compute_fans(var)
        total = float(
            (fan_in if self._fan_in is None else self._fan_in) + (fan_out if self._fan_out is None else self._fan_out)
        )
        if self._uniform:
            limit = math.sqrt(6.0 / total)
            return self._fill_uniform(var, block, -limit, limit, self._seed)
        return self._fill_normal(var, block, 0.0, math.sqrt(2.0 / total), self._seed)


class MSRAInitializer(Initializer):
    """MSRA (He) initialization for layers followed by relu, which preserves the variance of activations.

    Args:
      uniform: draw from a uniform instead of a normal distribution.
      fan_in: overrides the value derived from the parameter's shape.
      seed: 0 uses the program's.
    """

    def __init__(self, uniform: bool = True, fan_in: float | None = None, seed: int = 0):
        self._uniform, self._fan_in, self._seed = uniform, fan_in, _seed(seed)

    def __call__(self, var, block):
        fan_in = float(self._compute_fans(var)[0] if self._fan_in is None else self._fan_in)
        if self._uniform:
            limit = math.sqrt(6.0 / fan_in)
            return self._fill_uniform(var, block, -limit, limit, self._seed)
        return self._fill_normal(var, block, 0.0, math.sqrt(2.0 / fan_in), self._seed)


class BilinearInitializer(Initializer):
    """The filter of a transposed convolution that upsamples images by bilinear interpolation.

    Fluid computes these values under Python 2 only; under Python 3, true division skews its filter.
    """

    def __call__(self, var, block):
        if len(var.shape) != 4 or var.shape[2] != var.shape[3]:
            raise ValueError(
                f"a bilinear filter must have four dims with equal height and width, got {list(var.shape)}"
            )
        size = var.shape[3]
        half = math.ceil(size / 2.0)
        center = (2 * half - 1 - half % 2) / (2.0 * half)
        line = 1 - np.abs(np.arange(size) / half - center)  # differs: bilinear-filter
        return NumpyArrayInitializer(np.broadcast_to(np.outer(line, line), var.shape).astype("float32"))(var, block)


class NumpyArrayInitializer(Initializer):
    """Fills the parameter with the values of an array."""

    _SLOTS = {
        VarType.FP32: ("fp32_values", "float32"),
        VarType.INT32: ("int32_values", "int32"),
        VarType.INT64: ("int64_values", "int64"),
        VarType.BOOL: ("bool_values", "int32"),
    }

    def __init__(self, value: np.ndarray):
        if not isinstance(value, np.ndarray):
            raise TypeError(f"NumpyArrayInitializer expects a NumPy array, not {type(value).__name__}")
        self._value = value

    def __call__(self, var, block):
        if var.dtype not in self._SLOTS:
            names = ", ".join(dtype.name for dtype in self._SLOTS)
            raise TypeError(
                f"an array can initialize variables of dtype {names}; {var.name} has dtype {var.dtype.name}"
            )
        attr, dtype = self._SLOTS[var.dtype]
        values = self._value.astype(dtype).ravel()
        return self._fill(var, block, "assign_value", shape=list(self._value.shape), **{attr: values})


def _floating(var: Variable) -> Variable:
    if var.dtype not in (VarType.FP16, VarType.BF16, VarType.FP32, VarType.FP64):
        raise TypeError(f"random values require a floating-point variable; {var.name} has dtype {var.dtype.name}")
    return var


def _number(value: Any, name: str) -> float:
    if value is None:
        raise ValueError(f"{name} must be a number, not None")
    return float(value)


def _seed(seed: int) -> int:
    if seed is None:
        raise ValueError("seed must be an integer; 0 uses the program's")
    return int(seed)


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer
