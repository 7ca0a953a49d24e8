"""Layers that Fluid has under contrib: recurrent networks, matching, trees, metrics of clicks."""

from paddle.fluid.contrib.layers import metric_op, nn, rnn_impl
from paddle.fluid.contrib.layers.metric_op import *  # noqa: F403
from paddle.fluid.contrib.layers.nn import *  # noqa: F403
from paddle.fluid.contrib.layers.rnn_impl import *  # noqa: F403

__all__ = [*nn.__all__, *rnn_impl.__all__, *metric_op.__all__]  # pyright: ignore[reportUnsupportedDunderAll]
