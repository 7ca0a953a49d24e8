"""Programs as slim's strategies see them."""

from paddle.fluid.contrib.slim.graph.executor import SlimGraphExecutor
from paddle.fluid.contrib.slim.graph.graph_wrapper import GraphWrapper, OpWrapper, VarWrapper

__all__ = ["GraphWrapper", "OpWrapper", "SlimGraphExecutor", "VarWrapper"]
