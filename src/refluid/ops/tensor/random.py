"""Ops that draw random numbers. The lowering makes the key, from the op's ``seed`` if it has one; rules only use it.

random_crop and shuffle_batch instead carry a seed from run to run in a variable and are pure functions of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from refluid.ops.core import noise
from refluid.ops.core.dtypes import numpy_dtype
from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.static import described, integers, length


def _infer_drawn(default_dtype: int, keeps_known_dims: bool = False) -> Any:
    """Shape inference for ops whose shape may come from tensors: dims unknown at build time are -1.

    If one dim comes from a tensor, all ops but gaussian_random leave every dim unknown, as in Fluid.
    """

    def infer(inputs: Described, attrs: dict[str, Any]) -> Described:
        given, dims = described(inputs, "ShapeTensor"), inputs.get("ShapeTensorList")
        shape: Sequence[int] = attrs.get("shape", ())
        if dims and not keeps_known_dims:
            shape = (-1,) * len(dims)
        elif given is not None and not dims:
            shape = (-1,) * (length(given) or 0)
        return {"Out": [ShapeDtype(tuple(map(int, shape)), numpy_dtype(attrs.get("dtype", default_dtype)))]}

    return infer


_drawn = partial(op, outputs="Out", grad=None, random=True, lod=None)
_drawn_in_shape = partial(_drawn, inputs="ShapeTensor? ShapeTensorList*?", static="ShapeTensor ShapeTensorList")


@_drawn_in_shape("uniform_random", infer=_infer_drawn(5), slices="fill")
def uniform_random(
    given=None, dims=(), *, shape=(), min=-1.0, max=1.0, dtype=5, diag_num=0, diag_step=0, diag_val=1.0, key
):
    """Uniform in [min, max); ``diag_num`` elements, ``diag_step`` + 1 apart, become ``diag_val``."""
    if min > max:
        raise ValueError(f"min {min} is larger than max {max}")
    drawn = noise.uniform(key, integers(shape, given, dims), numpy_dtype(dtype), min, max)
    return _with_diagonal(drawn, diag_num, diag_step, diag_val)


def _with_diagonal(drawn: Any, diag_num: int, diag_step: int, diag_val: float) -> Any:
    if diag_num <= 0:
        return drawn
    places = np.arange(diag_num) * (diag_step + 1)
    if diag_step <= 0 or places[-1] >= drawn.size:
        raise ValueError(f"{diag_num} elements that are {diag_step + 1} apart do not fit {drawn.size} elements")
    return drawn.reshape(-1).at[places].set(diag_val).reshape(drawn.shape)


@_drawn_in_shape("gaussian_random", infer=_infer_drawn(5, keeps_known_dims=True), slices="fill")
def gaussian_random(given=None, dims=(), *, shape=(), mean=0.0, std=1.0, dtype=5, key):
    """Normal with ``mean`` and ``std``."""
    return noise.normal(key, integers(shape, given, dims), numpy_dtype(dtype), mean, std)


@_drawn("truncated_gaussian_random", inputs="", slices="fill")
def truncated_gaussian_random(*, shape=(), mean=0.0, std=1.0, dtype=5, key):
    """Normal, truncated to within two ``std`` of ``mean``."""
    return noise.truncated_normal(key, shape, numpy_dtype(dtype), mean, std)


@_drawn("uniform_random_batch_size_like", inputs="Input")
def uniform_random_batch_size_like(
    like,
    *,
    shape=(),
    input_dim_idx=0,
    output_dim_idx=0,
    min=-1.0,
    max=1.0,
    dtype=5,
    diag_num=0,
    diag_step=0,
    diag_val=1.0,
    key,
):
    """uniform_random with dim ``output_dim_idx`` as long as the input's dim ``input_dim_idx``."""
    shape = _batch_size_like(like, shape, input_dim_idx, output_dim_idx)
    return _with_diagonal(noise.uniform(key, shape, numpy_dtype(dtype), min, max), diag_num, diag_step, diag_val)


@_drawn("gaussian_random_batch_size_like", inputs="Input")
def gaussian_random_batch_size_like(
    like, *, shape=(), input_dim_idx=0, output_dim_idx=0, mean=0.0, std=1.0, dtype=5, key
):
    """gaussian_random with dim ``output_dim_idx`` as long as the input's dim ``input_dim_idx``."""
    shape = _batch_size_like(like, shape, input_dim_idx, output_dim_idx)
    return noise.normal(key, shape, numpy_dtype(dtype), mean, std)


def _batch_size_like(like: Any, shape: Sequence[int], input_dim_idx: int, output_dim_idx: int) -> list[int]:
    dims = [int(dim) for dim in shape]
    dims[output_dim_idx] = like.shape[input_dim_idx]
    return dims


@_drawn_in_shape("randint", infer=_infer_drawn(3))
def randint(given=None, dims=(), *, shape=(), low=0, high=0, dtype=3, key):
    """Integers in [low, high)."""
    if high <= low:
        raise ValueError(f"high must be greater than low, but high={high} and low={low}")
    return noise.integers(key, integers(shape, given, dims), numpy_dtype(dtype), low, high)


@_drawn("randperm", inputs="")
def randperm(*, n=0, dtype=3, key):
    """0 ... n - 1 in random order."""
    return _permutation(key, n).astype(numpy_dtype(dtype))


def _permutation(key: Any, size: int) -> Any:
    return jnp.argsort(noise.bits(key, (size,)))


@_drawn("seed", inputs="")
def seed_(*, seed=0, key):
    """The given seed, or a new one on each run."""
    drawn = (noise.bits(key, (1,)) >> np.uint32(1)).astype(jnp.int32)
    return jnp.full((1,), seed, jnp.int32) if seed else drawn


@op("random_crop", inputs="X Seed?", outputs="Out SeedOut", grad=None)
def random_crop(x, seed=None, *, shape=(), startup_seed=0):
    """A window of ``shape`` from the last dims, at a random position for each element of the leading dims."""
    shape = tuple(int(size) for size in shape)
    leading, window = x.shape[: x.ndim - len(shape)], x.shape[x.ndim - len(shape) :]
    if any(size > room for size, room in zip(shape, window, strict=True)):
        raise ValueError(f"a window of shape {list(shape)} does not fit the last dims {list(window)} of X")
    key = _carried_key(seed, startup_seed)
    count = math.prod(leading)
    rooms = np.array([room - size + 1 for size, room in zip(shape, window, strict=True)], np.uint32)
    starts = (noise.bits(key, (count, len(shape))) % rooms).astype(jnp.int32)
    cut = jax.vmap(lambda one, start: jax.lax.dynamic_slice(one, start, shape))
    return cut(x.reshape(count, *window), starts).reshape(*leading, *shape), _next_seed(key)


@op("shuffle_batch", inputs="X Seed?", outputs="Out ShuffleIdx SeedOut", differentiable="X")
def shuffle_batch(x, seed=None, *, startup_seed=0):
    """The rows of x, each spanning the last dim, in random order; ShuffleIdx holds the source of each."""
    key = _carried_key(seed, startup_seed)
    order = _permutation(key, math.prod(x.shape[:-1]))
    rows = x.reshape(-1, x.shape[-1])[order]
    return rows.reshape(x.shape), order.astype(jnp.int64), _next_seed(key)


def _carried_key(seed: Any, startup_seed: int) -> Any:
    """The key of the seed stored by the last run, or of the startup seed."""
    return jax.random.key(startup_seed if seed is None else seed.reshape(-1)[0])


def _next_seed(key: Any) -> Any:
    return noise.bits(noise.fold_in(key, 1), (1,)).astype(jnp.int64)
