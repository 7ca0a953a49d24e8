"""Optimizers with something added."""

from paddle.fluid.contrib.extend_optimizer import extend_optimizer_with_weight_decay
from paddle.fluid.contrib.extend_optimizer.extend_optimizer_with_weight_decay import extend_with_decoupled_weight_decay

__all__ = ["extend_optimizer_with_weight_decay", "extend_with_decoupled_weight_decay"]
