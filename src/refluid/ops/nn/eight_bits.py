"""Sums of products of 8-bit integers, as MKL-DNN computes them in saved models.

An integer q stands for q / scale. Sums are float32, and so exact up to 2^24.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

NON_NEGATIVE = ("relu", "relu6")  # activations after which MKL-DNN stores unsigned integers


def is_8_bit(x: Any) -> bool:
    return x.dtype in (jnp.int8, jnp.uint8)


def rounded(x: Any, dtype: Any) -> Any:
    """The nearest integers, even ones where two are as near, within the range of ``dtype``."""
    limits = jnp.iinfo(dtype)
    return jnp.clip(jnp.round(x), limits.min, limits.max).astype(dtype)


@dataclass(frozen=True)
class Scales:
    """The scales of an op's input, of its weights (one for each output, or one for all), and of its output."""

    input: float
    weights: Sequence[float]
    output: float
    force_fp32_output: bool = False

    def __post_init__(self):
        if self.force_fp32_output:
            object.__setattr__(self, "output", 1.0)

    @property
    def weight(self) -> Any:
        return jnp.asarray(self.weights, jnp.float32)

    def of_weight(self, w: Any, axis: int) -> Any:
        """The weights as integers; ``axis`` has the outputs."""
        shape = [-1 if i == axis else 1 for i in range(w.ndim)]
        return rounded(w * self.weight.reshape(shape), jnp.int8).astype(jnp.float32)

    def of_bias(self, bias: Any) -> Any:
        """The bias as integers that can be added to sums of products."""
        return jnp.round(bias.reshape(-1) * (self.weight * jnp.float32(self.input)))

    def of_sums(self, sums: Any, axis: int = -1) -> Any:
        """Sums of products in the scale of the output; ``axis`` has the outputs."""
        factor = jnp.float32(self.output) / (jnp.float32(self.input) * self.weight)
        return sums * factor.reshape([-1 if i == axis % sums.ndim else 1 for i in range(sums.ndim)])

    def stored(self, out: Any, activation: str) -> Any:
        """The output, in its scale, as it is stored."""
        if self.force_fp32_output:
            return out
        return rounded(out, jnp.uint8 if activation in NON_NEGATIVE else jnp.int8)
