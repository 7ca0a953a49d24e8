"""Pooling layers."""

from __future__ import annotations

from typing import Any

from paddle.fluid.layers._topics.core.append import append_single_op, require_floating
from paddle.fluid.layers._topics.core.integer_arguments import per_dim
from paddle.fluid.layers._topics.nn.conv import paddings_of
from refluid.ir import Variable

__all__ = ["adaptive_pool2d", "adaptive_pool3d", "pool2d", "pool3d"]


def pool2d(
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
    data_format: str = "NCHW",
) -> Variable:
    """Computes the maximum ("max") or mean ("avg") over windows of images.

    Args:
      pool_size, pool_stride: a number, or one for height and one for width.
      pool_padding: as for conv2d.
      global_pooling: use one window over the whole image and ignore the window arguments.
      ceil_mode: keep a last window that lies only partly on the image.
      exclusive: exclude padding from the mean.
    """
    attrs = {"use_cudnn": use_cudnn, "ceil_mode": ceil_mode, "exclusive": exclusive, "data_format": data_format}
    return _pool("pool2d", input, 2, pool_size, pool_type, pool_stride, pool_padding, global_pooling, attrs, name)


def pool3d(
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
    data_format: str = "NCDHW",
) -> Variable:
    """Computes the maximum or mean over windows of volumes; arguments as for pool2d, with depth first."""
    attrs = {"use_cudnn": use_cudnn, "ceil_mode": ceil_mode, "exclusive": exclusive, "data_format": data_format}
    return _pool("pool3d", input, 3, pool_size, pool_type, pool_stride, pool_padding, global_pooling, attrs, name)


def adaptive_pool2d(
    input: Variable, pool_size: Any, pool_type: str = "max", require_index: bool = False, name: str | None = None
) -> Any:
    """Computes the maximum or mean over windows that divide images into ``pool_size`` parts of nearly equal size.

    Returns:
      The result and, with ``require_index``, the position of each maximum in its image.
    """
    return _adaptive_pool("pool2d", input, 2, pool_size, pool_type, require_index, name)


def adaptive_pool3d(
    input: Variable, pool_size: Any, pool_type: str = "max", require_index: bool = False, name: str | None = None
) -> Any:
    """Like adaptive_pool2d, for volumes."""
    return _adaptive_pool("pool3d", input, 3, pool_size, pool_type, require_index, name)


def _pool(
    op_type: str,
    input: Variable,
    rank: int,
    size: Any,
    pool_type: str,
    stride: Any,
    padding: Any,
    global_pooling: bool,
    attrs: dict[str, Any],
    name: str | None,
) -> Variable:
    require_floating(op_type, input=input)
    _check_type(op_type, pool_type)
    if not isinstance(attrs["use_cudnn"], bool):
        raise TypeError(f"{op_type}: use_cudnn must be True or False, not {attrs['use_cudnn']!r}")
    known = ("NCHW", "NHWC") if rank == 2 else ("NCDHW", "NDHWC")
    if attrs["data_format"] not in known:
        raise ValueError(f"{op_type}: data_format must be {known[0]!r} or {known[1]!r}, not {attrs['data_format']!r}")
    if size == -1 and not global_pooling:
        raise ValueError(f"{op_type}: pool_size is required unless global_pooling is True")
    paddings, algorithm = paddings_of(padding, rank, attrs["data_format"])
    if algorithm == "VALID" and attrs["ceil_mode"]:
        raise ValueError(
            f"{op_type}: ceil_mode must be False with pool_padding 'VALID', because no window crosses the border"
        )
    attrs = {
        **attrs,
        "pooling_type": pool_type,
        "ksize": per_dim(size, rank, "pool_size"),
        "global_pooling": global_pooling,
        "strides": per_dim(stride, rank, "pool_stride"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "use_mkldnn": False,
    }
    return append_single_op(op_type, {"X": input}, {"Out": input.dtype}, attrs, name)["Out"]


def _adaptive_pool(
    op_type: str, input: Variable, rank: int, size: Any, pool_type: str, require_index: bool, name: str | None
) -> Any:
    layer = f"adaptive_{op_type}"
    require_floating(layer, input=input)
    _check_type(layer, pool_type)
    if pool_type == "avg" and require_index:
        raise ValueError(f"{layer}: require_index requires pool_type 'max'; a mean has no index")
    attrs = {"ksize": per_dim(size, rank, "pool_size"), "adaptive": True}
    if pool_type == "avg":
        attrs["pooling_type"] = pool_type
        return append_single_op(op_type, {"X": input}, {"Out": input.dtype}, attrs, name)["Out"]
    outputs = {"Out": input.dtype, "Mask": "int32"}
    made = append_single_op(f"max_{op_type}_with_index", {"X": input}, outputs, attrs, name)
    return (made["Out"], made["Mask"]) if require_index else made["Out"]


def _check_type(layer: str, pool_type: str) -> None:
    if pool_type not in ("max", "avg"):
        raise ValueError(f"{layer}: pool_type must be 'max' or 'avg', not {pool_type!r}")
