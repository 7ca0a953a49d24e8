"""Pooling layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle.fluid.layers._topics.core.append import append_single_op, named_layer, require_floating
from paddle.fluid.layers._topics.core.integer_arguments import per_dim
from paddle.fluid.layers._topics.nn.conv import paddings_of
from refluid.ir import Variable

__all__ = ["adaptive_pool2d", "adaptive_pool3d", "pool2d", "pool3d"]


def _pool(op_type: str, rank: int, data_format: str, doc: str) -> Callable[..., Variable]:
    known = ("NCHW", "NHWC") if rank == 2 else ("NCDHW", "NDHWC")

    def layer(
        input: Variable,
        pool_size: Any = -1,
        pool_type: str = "max",
        pool_stride: Any = 1,
        pool_padding: Any = 0,
        global_pooling: bool = False,
        use_cudnn: bool = True,
        ceil_mode: bool = False,
        name: str | None = None,
        exclusive: bool = True,
        data_format: str = data_format,
    ) -> Variable:
        require_floating(op_type, input=input)
        _check_type(op_type, pool_type)
        if not isinstance(use_cudnn, bool):
            raise TypeError(f"{op_type}: use_cudnn must be True or False, not {use_cudnn!r}")
        if data_format not in known:
            raise ValueError(f"{op_type}: data_format must be {known[0]!r} or {known[1]!r}, not {data_format!r}")
        if pool_size == -1 and not global_pooling:
            raise ValueError(f"{op_type}: pool_size is required unless global_pooling is True")
        paddings, algorithm = paddings_of(pool_padding, rank, data_format)
        if algorithm == "VALID" and ceil_mode:
            raise ValueError(
                f"{op_type}: ceil_mode must be False with pool_padding 'VALID', because no window crosses the border"
            )
        attrs = {
            "pooling_type": pool_type,
            "ksize": per_dim(pool_size, rank, "pool_size"),
            "global_pooling": global_pooling,
            "strides": per_dim(pool_stride, rank, "pool_stride"),
            "paddings": paddings,
            "padding_algorithm": algorithm,
            "use_cudnn": use_cudnn,
            "ceil_mode": ceil_mode,
            "use_mkldnn": False,
            "exclusive": exclusive,
            "data_format": data_format,
        }
        return append_single_op(op_type, {"X": input}, {"Out": input.dtype}, attrs, name)["Out"]

    return named_layer(layer, op_type, doc)


def _adaptive_pool(op_type: str, rank: int, doc: str) -> Callable[..., Any]:
    layer_type = f"adaptive_{op_type}"

    def layer(
        input: Variable, pool_size: Any, pool_type: str = "max", require_index: bool = False, name: str | None = None
    ) -> Any:
        require_floating(layer_type, input=input)
        _check_type(layer_type, pool_type)
        if pool_type == "avg" and require_index:
            raise ValueError(f"{layer_type}: require_index requires pool_type 'max'; a mean has no index")
        attrs = {"ksize": per_dim(pool_size, rank, "pool_size"), "adaptive": True}
        if pool_type == "avg":
            attrs["pooling_type"] = pool_type
            return append_single_op(op_type, {"X": input}, {"Out": input.dtype}, attrs, name)["Out"]
        outputs = {"Out": input.dtype, "Mask": "int32"}
        made = append_single_op(f"max_{op_type}_with_index", {"X": input}, outputs, attrs, name)
        return (made["Out"], made["Mask"]) if require_index else made["Out"]

    return named_layer(layer, layer_type, doc)


def _check_type(layer: str, pool_type: str) -> None:
    if pool_type not in ("max", "avg"):
        raise ValueError(f"{layer}: pool_type must be 'max' or 'avg', not {pool_type!r}")


pool2d = _pool(
    "pool2d",
    2,
    "NCHW",
    """Computes the maximum ("max") or mean ("avg") over windows of images.

    Args:
      pool_size, pool_stride: a number, or one for height and one for width.
      pool_padding: as for conv2d.
      global_pooling: use one window over the whole image and ignore the window arguments.
      ceil_mode: keep a last window that lies only partly on the image.
      exclusive: exclude padding from the mean.
    """,
)
pool3d = _pool(
    "pool3d",
    3,
    "NCDHW",
    "Computes the maximum or mean over windows of volumes; arguments as for pool2d, with depth first.",
)
adaptive_pool2d = _adaptive_pool(
    "pool2d",
    2,
    """Computes the maximum or mean over windows that divide images into ``pool_size`` parts of nearly equal size.

    Returns:
      The result and, with ``require_index``, the position of each maximum in its image.
    """,
)
adaptive_pool3d = _adaptive_pool("pool3d", 3, "Like adaptive_pool2d, for volumes.")
