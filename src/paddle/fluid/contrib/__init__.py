"""Tools around programs."""

from paddle.fluid.contrib import memory_usage_calc, op_frequence
from paddle.fluid.contrib.memory_usage_calc import memory_usage
from paddle.fluid.contrib.op_frequence import op_freq_statistic

__all__ = ["memory_usage", "memory_usage_calc", "op_freq_statistic", "op_frequence"]
