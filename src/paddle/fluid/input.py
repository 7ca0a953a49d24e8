"""Fluid 1.6's embedding and one_hot, which accept ids of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.layers._topics.nn.embedding import look_up
from paddle.fluid.layers._topics.tensor.index import encode
from refluid.ir import Variable

__all__ = ["embedding", "one_hot"]


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Looks up rows of a trainable table by ids of any shape, appending one dim. See `layers.embedding`."""
    return look_up("lookup_table_v2", input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype)


def one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """One-hot encodes ids of any shape into vectors of length ``depth``, appending one dim."""
    return encode("one_hot_v2", input, depth, allow_out_of_range)
