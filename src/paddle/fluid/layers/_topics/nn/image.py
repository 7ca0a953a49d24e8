"""Resizing, warping and rearranging images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import (
    FLOATING,
    append_output,
    append_single_op,
    named_layer,
    require_floating,
    without_gradient,
)
from paddle.fluid.layers._topics.core.integer_arguments import integer_variable
from refluid.ir import Variable

__all__ = [
    "affine_grid",
    "grid_sampler",
    "image_resize",
    "image_resize_short",
    "pixel_shuffle",
    "resize_bilinear",
    "resize_nearest",
    "resize_trilinear",
    "shuffle_channel",
    "space_to_depth",
    "temporal_shift",
]

_METHODS = {"BILINEAR": ("bilinear", 4), "TRILINEAR": ("trilinear", 5), "NEAREST": ("nearest", 4)}
_LAYOUTS = {4: {"NCHW": "NCHW", "NHWC": "NHWC"}, 5: {"NCDHW": "NCHW", "NDHWC": "NHWC"}}


def image_resize(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resizes images (or, with TRILINEAR, volumes) by interpolation.

    Args:
      out_shape: the new size: a list of integers or variables, or one variable that holds all sizes.
      scale: the scale factor if out_shape is None.
      resample: BILINEAR, TRILINEAR or NEAREST.
      actual_shape: a variable that overrides out_shape when the program runs.
      align_corners: align the centers of the corner pixels instead of the edges of the images.
      align_mode: without align_corners, 0 measures from pixel centers and 1 from pixel corners.
    """
    if resample not in _METHODS:
        raise ValueError(f"image_resize: resample must be BILINEAR, TRILINEAR or NEAREST, not {resample!r}")
    method, rank = _METHODS[resample]
    op_type = f"{method}_interp"
    check_variable_and_dtype(input, "input", (*FLOATING, "uint8"), op_type)
    if len(input.shape) != rank:
        raise ValueError(f"image_resize: {resample} requires an input with {rank} dims, got {len(input.shape)}")
    if not isinstance(align_corners, bool):
        raise TypeError(f"image_resize: align_corners must be True or False, not {align_corners!r}")
    if align_mode not in (0, 1):
        raise ValueError(f"image_resize: align_mode must be 0 or 1, not {align_mode}")
    if out_shape is None and scale is None:
        raise ValueError("image_resize requires out_shape or scale")
    if data_format not in _LAYOUTS[rank]:
        raise ValueError(f"image_resize: data_format must be one of {list(_LAYOUTS[rank])}, not {data_format}")
    helper = LayerHelper(op_type, name=name)
    inputs, sizes = {"X": input}, {}
    if out_shape is not None:
        sizes = _size_arguments(helper, out_shape, rank - 2, inputs)
    elif isinstance(scale, Variable):
        inputs["Scale"] = without_gradient(scale)
    else:
        sizes = {"scale": _factor(scale)}
    if actual_shape is not None:
        check_type(actual_shape, "actual_shape", Variable, "image_resize")
        inputs["OutSize"] = without_gradient(actual_shape)
    attrs = {
        "out_d": -1,
        "out_h": -1,
        "out_w": -1,
        **sizes,
        "interp_method": method,
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": _LAYOUTS[rank][data_format],
    }
    return append_output(helper, inputs, input.dtype, attrs)


def _factor(scale: Any) -> float:
    check_type(scale, "scale", (int, float, Variable), "image_resize")
    if scale <= 0:
        raise ValueError(f"image_resize: scale must be positive, not {scale}")
    return float(scale)


def _size_arguments(helper: LayerHelper, out_shape: Any, count: int, inputs: dict[str, Any]) -> dict[str, int]:
    """Returns the size as attributes and adds variable sizes to ``inputs``."""
    if isinstance(out_shape, Variable):
        inputs["OutSize"] = without_gradient(out_shape)
        return {}
    check_type(out_shape, "out_shape", (list, tuple, Variable), "image_resize")
    if len(out_shape) != count:
        raise ValueError(f"image_resize: out_shape must hold {count} sizes, not {len(out_shape)}")
    if any(isinstance(size, Variable) for size in out_shape):
        inputs["SizeTensor"] = [integer_variable(helper, size) for size in out_shape]
    sizes = [-1 if isinstance(size, Variable) else int(size) for size in out_shape]
    if any(size <= 0 for size, given in zip(sizes, out_shape, strict=True) if not isinstance(given, Variable)):
        raise ValueError(f"image_resize: all sizes must be positive, got {sizes}")
    return dict(zip(("out_d", "out_h", "out_w")[3 - count :], sizes, strict=True))


def _resize(method: str, data_format: str, doc: str) -> Callable[..., Variable]:
    def layer(
        input: Variable,
        out_shape: Any = None,
        scale: Any = None,
        name: str | None = None,
        actual_shape: Variable | None = None,
        align_corners: bool = True,
        align_mode: int = 1,
        data_format: str = data_format,
    ) -> Variable:
        return image_resize(input, out_shape, scale, name, method, actual_shape, align_corners, align_mode, data_format)

    return named_layer(layer, f"resize_{method.lower()}", doc)


resize_bilinear = _resize("BILINEAR", "NCHW", "Resizes images by bilinear interpolation; see image_resize.")
resize_trilinear = _resize("TRILINEAR", "NCDHW", "Resizes volumes by trilinear interpolation; see image_resize.")


def resize_nearest(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Resizes images by taking the nearest pixel; see image_resize."""
    return image_resize(input, out_shape, scale, name, "NEAREST", actual_shape, align_corners, 1, data_format)


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Resizes images so that their shorter side has length ``out_short_len``, preserving the aspect ratio."""
    if len(input.shape) != 4:
        raise ValueError(f"image_resize_short requires an input with four dims, got {len(input.shape)}")
    factor = float(out_short_len) / float(min(input.shape[2:]))
    short = 2 if input.shape[2] <= input.shape[3] else 3
    sizes = [out_short_len if axis == short else int(input.shape[axis] * factor + 0.5) for axis in (2, 3)]
    return image_resize(input, sizes, resample=resample)


def affine_grid(theta: Variable, out_shape: Any, name: str | None = None) -> Variable:
    """Computes the sampling grid of an affine map for images of shape ``out_shape``, for use with grid_sampler.

    Args:
      theta: the affine maps, of shape [N, 2, 3].
      out_shape: [N, C, H, W], as a list or a variable.
    """
    require_floating("affine_grid", theta=theta)
    check_type(out_shape, "out_shape", (list, tuple, Variable), "affine_grid")
    given = isinstance(out_shape, Variable)
    inputs = {"Theta": theta, "OutputShape": out_shape if given else None}
    attrs = {} if given else {"output_shape": list(out_shape)}
    return append_single_op("affine_grid", inputs, {"Output": theta.dtype}, attrs)["Output"]


def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Samples the image at the points of ``grid``, of shape [N, H, W, 2] with coordinates in [-1, 1]."""
    require_floating("grid_sampler", x=x, grid=grid)
    return append_single_op("grid_sampler", {"X": x, "Grid": grid}, {"Output": x.dtype}, name=name)["Output"]


def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Rearranges blocks of pixels into ``blocksize ** 2`` times as many channels."""
    check_type(blocksize, "blocksize", int, "space_to_depth")
    return _rearranged("space_to_depth", x, {"blocksize": blocksize}, name)


def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Rearranges channels into an image that is ``upscale_factor`` times as high and wide."""
    require_floating("pixel_shuffle", x=x)
    check_type(upscale_factor, "upscale_factor", int, "pixel_shuffle")
    return _rearranged("pixel_shuffle", x, {"upscale_factor": upscale_factor})


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """Interleaves the channels of ``group`` groups."""
    check_type(group, "group", int, "shuffle_channel")
    return _rearranged("shuffle_channel", x, {"group": group}, name)


def temporal_shift(x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None) -> Variable:
    """Shifts some channels of a video one frame forward and as many one frame back.

    Args:
      x: the frames, of shape [N * seg_num, C, H, W].
      seg_num: the number of frames per video.
      shift_ratio: the fraction of channels shifted in each direction.
    """
    require_floating("temporal_shift", x=x)
    check_type(seg_num, "seg_num", int, "temporal_shift")
    return _rearranged("temporal_shift", x, {"seg_num": seg_num, "shift_ratio": shift_ratio}, name)


def _rearranged(op_type: str, x: Variable, attrs: dict[str, Any], name: str | None = None) -> Variable:
    check_type(x, "x", Variable, op_type)
    return append_single_op(op_type, {"X": x}, {"Out": x.dtype}, attrs, name)["Out"]
