"""Pooling and straightening regions of interest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layers._topics.core.append import append_single_op, require_floating, require_integer
from refluid.ir import Variable

__all__ = [
    "deformable_roi_pooling",
    "prroi_pool",
    "psroi_pool",
    "roi_align",
    "roi_perspective_transform",
    "roi_pool",
]


def roi_pool(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    rois_lod: Variable | None = None,
) -> Variable:
    """Computes the maximum of each of ``pooled_height`` by ``pooled_width`` bins of every region.

    Args:
      input: images of shape [samples, channels, height, width].
      rois: boxes of shape [regions, 4]; a sequence for each image.
      spatial_scale: the size of ``input`` over that of the image that boxes refer to.
      rois_lod: where the regions of each image begin, and the last ones end, if rois does not hold sequences.

    Returns:
      bins of shape [regions, channels, pooled_height, pooled_width].
    """
    attrs = _bin_attrs("roi_pool", pooled_height, pooled_width, spatial_scale)
    inputs = _region_inputs("roi_pool", input, rois, "RoisLod", rois_lod)
    return append_single_op("roi_pool", inputs, {"Out": input.dtype, "Argmax": "int32"}, attrs)["Out"]


def roi_align(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    name: str | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """Computes the mean of points in each of ``pooled_height`` by ``pooled_width`` bins of every region.

    Args:
      sampling_ratio: the number of points in a row and in a column of a bin; -1 for as many as it has pixels.

    Other arguments and the result are as for roi_pool.
    """
    attrs = _bin_attrs("roi_align", pooled_height, pooled_width, spatial_scale)
    attrs["sampling_ratio"] = sampling_ratio
    inputs = _region_inputs("roi_align", input, rois, "RoisLod", rois_lod)
    return append_single_op("roi_align", inputs, {"Out": input.dtype}, attrs, name)["Out"]


def psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    name: str | None = None,
) -> Variable:
    """Computes the mean of each bin of every region, from channels that only this bin has.

    Args:
      input: images with output_channels * pooled_height * pooled_width channels.

    Other arguments are as for roi_pool; the result has ``output_channels`` channels.
    """
    check_type(output_channels, "output_channels", int, "psroi_pool")
    check_type(spatial_scale, "spatial_scale", float, "psroi_pool")
    attrs = _bin_attrs("psroi_pool", pooled_height, pooled_width, spatial_scale)
    attrs["output_channels"] = output_channels
    inputs = _region_inputs("psroi_pool", input, rois)
    return append_single_op("psroi_pool", inputs, {"Out": input.dtype}, attrs, name)["Out"]


def prroi_pool(
    input: Variable,
    rois: Variable,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    batch_roi_nums: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Computes the mean of each bin of every region of the interpolated image; differentiable in the regions.

    Args:
      batch_roi_nums: the number of regions of each image, if rois does not hold sequences.

    Other arguments and the result are as for roi_pool.
    """
    check_type(spatial_scale, "spatial_scale", float, "prroi_pool")
    attrs = _bin_attrs("prroi_pool", pooled_height, pooled_width, spatial_scale)
    inputs = _region_inputs("prroi_pool", input, rois, "BatchRoINums", batch_roi_nums)
    return append_single_op("prroi_pool", inputs, {"Out": input.dtype}, attrs, name)["Out"]


def deformable_roi_pooling(
    input: Variable,
    rois: Variable,
    trans: Variable,
    no_trans: bool = False,
    spatial_scale: float = 1.0,
    group_size: Sequence[int] = (1, 1),
    pooled_height: int = 1,
    pooled_width: int = 1,
    part_size: Sequence[int] | None = None,
    sample_per_part: int = 1,
    trans_std: float = 0.1,
    position_sensitive: bool = False,
    name: str | None = None,
) -> Variable:
    """Computes the mean of points in each bin of every region, whose bins are moved.

    Args:
      trans: by how much parts of regions are moved, of shape [regions, 2 * classes, part height, part width].
      no_trans: do not move them.
      group_size: the numbers of groups of channels, down and across; a bin reads one of them.
      part_size: the numbers of parts of a region, down and across; by default as many as bins.
      sample_per_part: the number of points in a row and in a column of a bin.
      trans_std: what trans is multiplied by, and then by the size of the region.
      position_sensitive: whether a bin reads one group of channels.

    Other arguments and the result are as for roi_pool.
    """
    require_floating("deformable_roi_pooling", trans=trans)
    check_type(group_size, "group_size", (list, tuple), "deformable_roi_pooling")
    if part_size is not None:
        check_type(part_size, "part_size", (list, tuple), "deformable_roi_pooling")
    groups = list(group_size)
    attrs = {
        **_bin_attrs("deformable_roi_pooling", pooled_height, pooled_width, spatial_scale),
        "no_trans": no_trans,
        "output_dim": input.shape[1] // (pooled_height * pooled_width) if position_sensitive else input.shape[1],
        "group_size": groups,
        "part_size": [pooled_height, pooled_width] if part_size is None else list(part_size),
        "sample_per_part": sample_per_part,
        "trans_std": trans_std,
    }
    inputs = {"Input": input, "ROIs": rois, "Trans": trans}
    outputs = {"Output": input.dtype, "TopCount": "int32"}
    return append_single_op("deformable_psroi_pooling", inputs, outputs, attrs, name)["Output"]


def roi_perspective_transform(
    input: Variable,
    rois: Variable,
    transformed_height: int,
    transformed_width: int,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Straightens quadrilateral regions.

    Args:
      rois: the corners of each region, clockwise from the upper left one, of shape [regions, 8].

    Other arguments are as for roi_pool.

    Returns:
      images of shape [regions, channels, transformed_height, transformed_width]; masks that tell which of their pixels
      are inside of the region and the image; and the maps from their pixels to those of ``input``, [regions, 9].
    """
    require_floating("roi_perspective_transform", input=input, rois=rois)
    check_type(transformed_height, "transformed_height", int, "roi_perspective_transform")
    check_type(transformed_width, "transformed_width", int, "roi_perspective_transform")
    attrs = {
        "transformed_height": transformed_height,
        "transformed_width": transformed_width,
        "spatial_scale": float(spatial_scale),
    }
    outputs = {
        "Out": input.dtype,
        "Mask": "int32",
        "TransformMatrix": input.dtype,
        "Out2InIdx": "int32",
        "Out2InWeights": input.dtype,
    }
    inputs = {"X": input, "ROIs": rois}
    made = append_single_op("roi_perspective_transform", inputs, outputs, attrs, name)
    return made["Out"], made["Mask"], made["TransformMatrix"]


def _bin_attrs(layer: str, pooled_height: int, pooled_width: int, spatial_scale: float) -> dict[str, Any]:
    check_type(pooled_height, "pooled_height", int, layer)
    check_type(pooled_width, "pooled_width", int, layer)
    return {"pooled_height": pooled_height, "pooled_width": pooled_width, "spatial_scale": float(spatial_scale)}


def _region_inputs(
    layer: str, input: Variable, rois: Variable, slot: str = "", splits: Variable | None = None
) -> dict[str, Variable]:
    require_floating(layer, input=input, rois=rois)
    if splits is None:
        return {"X": input, "ROIs": rois}
    require_integer(layer, **{slot: splits})
    return {"X": input, "ROIs": rois, slot: splits}
