"""The fully connected layer."""

from __future__ import annotations

import math

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_output

__all__ = ["fc"]


def fc(input, size, num_flatten_dims=1, param_attr=None, bias_attr=None, act=None, is_test=False, name=None):
    """Multiplies each input by its own weight, sums the products, adds a bias and applies ``act``.

    Args:
      input: a variable or a list of variables.
      size: the number of output units.
      num_flatten_dims: the number of leading dims to keep; the rest are flattened. -1 keeps all but the last.
      param_attr: one for all weights, or a list with one per input.
      bias_attr: False omits the bias.
      is_test: ignored.
    """
    helper = LayerHelper("fc", input=input, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
    dtype = helper.input_dtype()
    products = []
    for x, attr in helper.iter_inputs_and_params():
        kept = len(x.shape) - 1 if num_flatten_dims == -1 else num_flatten_dims
        if not 0 < kept < len(x.shape):
            raise ValueError(
                f"fc: num_flatten_dims {num_flatten_dims} is invalid for an input of shape {list(x.shape)}"
            )
        if -1 in x.shape[kept:]:
            raise ValueError(
                f"fc: the weight requires fixed dims from {kept} on, but {x.name} has shape {list(x.shape)}"
            )
        weight = helper.create_parameter(attr, [math.prod(x.shape[kept:]), size], dtype)
        if weight is None:
            raise ValueError("fc: param_attr cannot be False, because fc requires a weight")
        attrs = {"x_num_col_dims": kept, "y_num_col_dims": 1}
        products.append(append_output(helper, {"X": x, "Y": weight}, dtype, attrs, "mul"))
    total = append_output(helper, {"X": products}, dtype, op_type="sum") if len(products) > 1 else products[0]
    first = helper.multiple_input()[0]
    return helper.append_activation(
        helper.append_bias_op(total, dim_start=len(first.shape) - 1 if num_flatten_dims == -1 else num_flatten_dims)
    )
