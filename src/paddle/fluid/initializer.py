"""How parameters get their first values. ``initializer(var, block)`` adds one op that fills ``var``, normally to the
startup program, and returns it."""

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
    """Whether constants are asked to be made on the CPU; only programs that are saved can tell."""
    return _force_init_on_cpu


@contextmanager
def init_on_cpu() -> Iterator[None]:
    """Marks the constants created inside as made on the CPU."""
    global _force_init_on_cpu
    before, _force_init_on_cpu = _force_init_on_cpu, True
    try:
        yield
    finally:
        _force_init_on_cpu = before


class Initializer:
    """What all initializers have in common."""

    def __call__(self, param: Variable, block: Block) -> Operator:
        raise NotImplementedError(f"{type(self).__name__} does not say how it fills a variable")

    def _compute_fans(self, var: Variable) -> tuple[int, int]:
        """How many numbers go into one output of the layer, and how many outputs one number goes into."""
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
        """Adds the op at the beginning, where Fluid puts it: whatever the startup program computes comes after."""
        if not isinstance(var, Variable) or not isinstance(block, Block):
            raise TypeError("an initializer is called with a variable and the block that fills it")
        attrs = {"shape": list(var.shape), "dtype": int(var.dtype), **attrs}
        return block._prepend_op(type=type, outputs={"Out": var}, attrs=attrs)

    def _fill_uniform(self, var: Variable, block: Block, low: float, high: float, seed: int, **attrs: Any) -> Operator:
        return self._fill(_floating(var), block, "uniform_random", min=low, max=high, seed=seed, **attrs)

    def _fill_normal(self, var: Variable, block: Block, mean: float, std: float, seed: int) -> Operator:
        return self._fill(_floating(var), block, "gaussian_random", mean=mean, std=std, seed=seed)


class ConstantInitializer(Initializer):
    """Every element is ``value``."""

    def __init__(self, value: float = 0.0, force_cpu: bool = False):
        self._value, self._force_cpu = _number(value, "value"), force_cpu

    def __call__(self, var, block):
        force_cpu = bool(self._force_cpu or force_init_on_cpu())
        return self._fill(var, block, "fill_constant", value=self._value, force_cpu=force_cpu)


class UniformInitializer(Initializer):
    """Uniform in [low, high); ``diag_num`` elements, ``diag_step`` + 1 apart, can be set to ``diag_val``."""

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
            raise ValueError(f"high must not be less than low, but high={high} and low={low}")
        if (diag_num > 0) != (diag_step > 0):
            raise ValueError("diag_num and diag_step go together: both positive, or both 0")
        self._diag = {"diag_num": diag_num, "diag_step": diag_step, "diag_val": float(diag_val)}

    def __call__(self, var, block):
        return self._fill_uniform(var, block, self._low, self._high, self._seed, **self._diag)


class NormalInitializer(Initializer):
    """Normal with mean ``loc`` and standard deviation ``scale``."""

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0):
        self._mean, self._std_dev, self._seed = _number(loc, "loc"), _number(scale, "scale"), _seed(seed)

    def __call__(self, var, block):
        return self._fill_normal(var, block, self._mean, self._std_dev, self._seed)


class TruncatedNormalInitializer(NormalInitializer):
    """Normal, but nothing farther from ``loc`` than two standard deviations."""

    def __call__(self, var, block):
        attrs = {"mean": self._mean, "std": self._std_dev, "seed": self._seed}
        return self._fill(_floating(var), block, "truncated_gaussian_random", **attrs)


class XavierInitializer(Initializer):
    """Glorot and Bengio's: keeps the size of values and of gradients from layer to layer.

    Args:
      uniform: uniform, rather than normal.
      fan_in, fan_out: replace the numbers derived from the parameter's shape.
      seed: 0 takes the program's.
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
    """He's, for layers that are followed by relu: keeps the size of values only.

    Args:
      uniform: uniform, rather than normal.
      fan_in: replaces the number derived from the parameter's shape.
      seed: 0 takes the program's.
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
    """The filter of a transposed convolution that enlarges images by bilinear interpolation.

    Fluid gives these values under Python 2 only; under Python 3 a division that is no longer whole skews its filter.
    """

    def __call__(self, var, block):
        if len(var.shape) != 4 or var.shape[2] != var.shape[3]:
            raise ValueError(f"a bilinear filter has four dims, the last two equal, not shape {list(var.shape)}")
        size = var.shape[3]
        half = math.ceil(size / 2.0)
        center = (2 * half - 1 - half % 2) / (2.0 * half)
        line = 1 - np.abs(np.arange(size) / half - center)
        return NumpyArrayInitializer(np.broadcast_to(np.outer(line, line), var.shape).astype("float32"))(var, block)


class NumpyArrayInitializer(Initializer):
    """The values of an array."""

    _SLOTS = {
        VarType.FP32: ("fp32_values", "float32"),
        VarType.INT32: ("int32_values", "int32"),
        VarType.INT64: ("int64_values", "int64"),
        VarType.BOOL: ("bool_values", "int32"),
    }

    def __init__(self, value: np.ndarray):
        if not isinstance(value, np.ndarray):
            raise TypeError(f"NumpyArrayInitializer takes a NumPy array, not {type(value).__name__}")
        self._value = value

    def __call__(self, var, block):
        if var.dtype not in self._SLOTS:
            names = ", ".join(dtype.name for dtype in self._SLOTS)
            raise TypeError(f"an array can fill variables of dtype {names}; {var.name} has dtype {var.dtype.name}")
        attr, dtype = self._SLOTS[var.dtype]
        values = self._value.astype(dtype).ravel()
        return self._fill(var, block, "assign_value", shape=list(self._value.shape), **{attr: values})


def _floating(var: Variable) -> Variable:
    if var.dtype not in (VarType.FP16, VarType.BF16, VarType.FP32, VarType.FP64):
        raise TypeError(f"random values need a floating-point variable; {var.name} has dtype {var.dtype.name}")
    return var


def _number(value: Any, name: str) -> float:
    if value is None:
        raise ValueError(f"{name} must be a number, not None")
    return float(value)


def _seed(seed: int) -> int:
    if seed is None:
        raise ValueError("seed must be an integer; 0 takes the program's")
    return int(seed)


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer
