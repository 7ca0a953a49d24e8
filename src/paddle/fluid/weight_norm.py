"""Weight normalization: a weight as direction ``v`` and magnitude ``g``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paddle.fluid.param_attr import WeightNormParamAttr
from refluid.ir import Block, Variable, unique_name

if TYPE_CHECKING:
    from paddle.fluid.layer_helper import LayerHelper


def normalized_weight(helper: LayerHelper, attr: WeightNormParamAttr, shape: Sequence[int], dtype: Any) -> Variable:
    """Returns the weight ``v * g / ||v||``; the norm is taken over every dim except ``attr.dim``."""
    dim = attr.dim
    length_attr, direction_attr = copy.deepcopy(attr), copy.deepcopy(attr)
    length_attr.name = unique_name.generate(f"{helper.name}.w_g") if attr.name is None else attr.name + "_g"
    direction_attr.name = unique_name.generate(f"{helper.name}.w_v") if attr.name is None else attr.name + "_v"
    kept = [size if i == dim else 1 for i, size in enumerate(shape)]
    startup = helper.startup_program.global_block()
    length = helper.main_program.global_block().create_parameter(dtype=dtype, shape=kept, **length_attr._to_kwargs())
    direction = helper.add_parameter(direction_attr, shape, dtype)
    in_startup = startup.create_parameter(dtype=dtype, shape=length.shape, **length_attr._to_kwargs())
    # The magnitude starts as the norm of the direction, so that the weight starts as initialized.
    norm = _norm_except(startup, startup.var(direction.name), dim, len(shape))
    shape_attr = {"shape": list(length.shape)}
    startup.append_op(type="reshape", inputs={"X": norm}, outputs={"Out": in_startup}, attrs=shape_attr)
    return _weight(helper.main_program.current_block(), direction, length, dim, attr)


def _weight(block: Block, direction: Variable, length: Variable, dim: int | None, attr: Any) -> Variable:
    norm = _norm_except(block, direction, dim, len(direction.shape))
    shaped = _temporary(block, length)
    block.append_op(type="reshape", inputs={"X": length}, outputs={"Out": shaped}, attrs={"shape": list(norm.shape)})
    scale = _temporary(block, direction)
    block.append_op(type="elementwise_div", inputs={"X": shaped, "Y": norm}, outputs={"Out": scale})
    weight = _temporary(block, direction)
    block.append_op(type="elementwise_mul", inputs={"X": direction, "Y": scale}, outputs={"Out": weight})
    return weight


def _norm_except(block: Block, value: Variable, dim: int | None, rank: int) -> Variable:
    """Returns the 2-norm over every dim except ``dim``, keeping those dims with size 1."""
    squared, total, norm = (_temporary(block, value) for _ in range(3))
    block.append_op(type="square", inputs={"X": value}, outputs={"Out": squared})
    axes = [i for i in range(rank) if i != dim]
    attrs = {"dim": axes, "keep_dim": True, "reduce_all": dim is None}
    block.append_op(type="reduce_sum", inputs={"X": squared}, outputs={"Out": total}, attrs=attrs)
    block.append_op(type="sqrt", inputs={"X": total}, outputs={"Out": norm})
    return norm


def _temporary(block: Block, like: Variable) -> Variable:
    return block.create_var(name=unique_name.generate("weight_norm.tmp"), dtype=like.dtype)
