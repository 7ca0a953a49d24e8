"""Pruning: models lose the channels that matter least."""

from paddle.fluid.contrib.slim.prune.auto_prune_strategy import AutoPruneStrategy
from paddle.fluid.contrib.slim.prune.prune_strategy import (
    PruneStrategy,
    SensitivePruneStrategy,
    UniformPruneStrategy,
)
from paddle.fluid.contrib.slim.prune.pruner import Pruner, StructurePruner

__all__ = [
    "AutoPruneStrategy",
    "PruneStrategy",
    "Pruner",
    "SensitivePruneStrategy",
    "StructurePruner",
    "UniformPruneStrategy",
]
