"""How values of JAX are kept in variables of Fluid, which have neither scalars, nor random keys, nor unsigned words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from refluid.ops.core.dtypes import fluid_dtype


@dataclass(frozen=True)
class Stored:
    """The form in which a value is kept: a number as an array of one element, keys and uint32 as int32.

    Attributes:
      value: shape and dtype of the value.
      shape, dtype: those of the variable.
    """

    value: Any
    shape: tuple[int, ...]
    dtype: np.dtype

    @classmethod
    def of(cls, value: Any) -> Stored:
        """The form for a value with a shape and a dtype.

        Raises:
          TypeError: it is no array, or has a dtype that variables cannot have.
        """
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            raise TypeError(f"{value!r} is not an array")
        described = jax.ShapeDtypeStruct(value.shape, value.dtype)
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.dtype != jax.random.key(0).dtype:
            raise TypeError(f"random keys must be JAX's default ones, not {value.dtype}")
        with jax.enable_x64(True):
            raw = jax.eval_shape(_raw, described)
        try:
            fluid_dtype(raw.dtype)
        except (TypeError, ValueError, KeyError):
            raise TypeError(f"variables of a program cannot be {value.dtype}") from None
        return cls(described, raw.shape or (1,), np.dtype(raw.dtype))

    def pack(self, value: Any) -> Any:
        """The value as the variable holds it; its shape may be that of a part."""
        raw = _raw(jnp.asarray(value, self.value.dtype))
        return raw if raw.ndim else raw.reshape(1)

    def unpack(self, kept: Any) -> Any:
        """The inverse of `pack`."""
        if jnp.issubdtype(self.value.dtype, jax.dtypes.prng_key):
            words = jax.lax.bitcast_convert_type(kept, jnp.uint32)
            return jax.random.wrap_key_data(words)
        if self.value.dtype == jnp.uint32:
            kept = jax.lax.bitcast_convert_type(kept, jnp.uint32)
        return kept if self.value.shape else kept.reshape(())


def _raw(value: Any) -> Any:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return jax.lax.bitcast_convert_type(value, jnp.int32) if value.dtype == jnp.uint32 else value
